"""``%shared``: the shared variables of a store; read, set and declare them."""

from __future__ import annotations

import argparse
import contextlib
import json
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

from streamstate.errors import InvalidArgumentError
from streamstate.magics.arguments import MagicParser, add_output, add_store
from streamstate.magics.magic import Magic
from streamstate.magics.notebook_context import NotebookContext
from streamstate.snapshots.checkpoint.filesystem import local_path
from streamstate.widgets.tables.summary_table import SummaryTable

if TYPE_CHECKING:
    from streamstate.variables.declared_types import DeclaredType
    from streamstate.variables.shared_variable import SharedVariable

_MERGES = ("last", "sum", "min", "max", "union", "append(1000)", "average", "moments", "regression", "hll", "kll")
_TYPES = ("double", "bigint", "counter", "string", "set<string>", "list<string>", "map<string,double>")
_SHOWN = 60
_TIMES: dict[str, Any] = {
    "date": date.fromisoformat,
    "timestamp": datetime.fromisoformat,
    "timestamp_ntz": datetime.fromisoformat,
}


def _parser() -> MagicParser:
    parser = MagicParser(
        "%shared",
        "Show, set or declare the variables that operators share with the notebook.\n\n"
        "Without a name, list the variables of the store. A value is written as JSON; plain text is a string.",
        epilog="Examples:\n  %shared\n  %shared limit --type double --init 60\n  %shared limit 45\n  %shared limit\n"
        "  %shared limit --slider 0 120 --query delays\n  %shared limit --history\n"
        "  %shared alerts --type list<string> --merge append(100) --access write-mostly",
    )
    parser.add("name", metavar="NAME", nargs="?", completes="shared", help="a variable")
    parser.add("value", metavar="VALUE", nargs="?", help="set it: 45, '[1, 2]', '{\"HA\": 3}', UA")
    parser.add("--history", action="store_true", help="show all versions")
    parser.add("--slider", metavar=("MIN", "MAX"), nargs=2, type=_number, help="a slider that sets a number")
    parser.add(
        "--query",
        metavar="QUERY",
        completes="query",
        help="with --slider: say from which epoch on this query saw what was set",
    )
    parser.add("--type", metavar="TYPE", suggestions=_TYPES, help="declare it, with a type of Spark's SQL")
    parser.add("--init", metavar="VALUE", help="its first value, with --type")
    parser.add("--merge", metavar="HOW", suggestions=_MERGES, help="how contributions are merged (default: last)")
    parser.add(
        "--consistency",
        suggestions=("epoch", "bounded(10)", "latest"),
        help="how fresh readers see it (default: epoch)",
    )
    parser.add("--access", choices=("read-mostly", "write-mostly"), help="how operators use it (default: read-mostly)")
    parser.add("--transport", metavar="URL", help="where versions are kept while queries run (default: the store)")
    add_store(parser, "the store (default: the last store used)")
    add_output(parser, "keep the variable, or the history, in a variable of the notebook")
    return parser


def _run(notebook: NotebookContext, args: argparse.Namespace, _cell: str) -> Any:
    """List the variables, or do what the line asks of one."""
    __tracebackhide__ = True
    store = notebook.store_path(args.store)
    options = notebook.options(store, args.storage_options)
    if args.name is None:
        return _listed(notebook, store, options)
    variable = _variable(args, store, options)
    notebook.use_store(store)
    if args.history:
        found = variable.history()
        notebook.assign(args.output, found)
        return found
    notebook.assign(args.output, variable)
    if args.value is not None:
        version = variable.set(_value(args.value, variable.declaration.type))
        for own in _held(notebook, variable):
            own.get()  # it was set here, so that setting it in a cell is no conflict
        print(f"{args.name} is {_text(variable.get())} from the next epoch that begins (version {version}).")
        return None
    if args.slider is not None:
        from streamstate import widgets

        query = None if args.query is None else notebook.running.get(args.query) or notebook.open(store)[args.query]
        return widgets.VariableSlider([*_held(notebook, variable), variable][0], *args.slider, query=query)
    if args.type is not None:
        print(f"{args.name} is declared: {variable.declaration.type.text}, {_text(variable.get())}.")
        return None
    return variable.get()


def _variable(args: argparse.Namespace, store: str, options: dict[str, str] | None) -> SharedVariable:
    from streamstate.variables.declared_types import declared_type
    from streamstate.variables.declaring import declared_variable, shared

    given = {
        "init": None
        if args.init is None
        else _value(args.init, None if args.type is None else declared_type(args.type)),
        "merge": args.merge,
        "consistency": args.consistency,
        "access": args.access,
        "transport": args.transport,
    }
    given = {name: value for name, value in given.items() if value is not None}
    if args.type is not None:
        return shared(store, args.name, args.type, storage_options=options, **given)
    if given:
        raise InvalidArgumentError(
            f"--{next(iter(given))} declares a variable: it needs --type, such as --type double."
        )
    return declared_variable(store, args.name, options)


def _held(notebook: NotebookContext, variable: SharedVariable) -> list[SharedVariable]:
    """The notebook's own variables that hold the same shared variable."""
    known = [value for value in notebook.shell.user_ns.values() if isinstance(value, type(variable))]
    return [own for own in known if own is not variable and (own.name, own.store) == (variable.name, variable.store)]


def _listed(notebook: NotebookContext, store: str, options: dict[str, str] | None) -> SummaryTable:
    from streamstate.variables.declaring import declared_variable

    rows = []
    local = local_path(store)
    names = [] if local is not None and not local.exists() else notebook.open(store).variables()
    for name in names:
        variable = declared_variable(store, name, options)
        made = variable.declaration
        rows.append(
            [name, made.type.text, _text(variable.get()), variable.version, made.merge, made.consistency, made.access]
        )
    columns = ["name", "type", "value", "version", "merge", "consistency", "access"]
    empty = "There are no shared variables yet. Declare one: %shared limit --type double --init 60"
    return SummaryTable(columns, rows, empty=empty, caption="Shared variables")


def _value(text: str, declared: DeclaredType | None) -> Any:
    """A value as it is written: JSON, or else text; of a string, whatever is no JSON string is the text itself."""
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    kind = None if declared is None else declared.text
    if kind == "string":
        return value if value is None or isinstance(value, str) else text
    if isinstance(value, str) and kind in _TIMES:
        with contextlib.suppress(ValueError):
            return _TIMES[kind](value)
    return value


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a number, not {text!r}") from None


def _text(value: Any) -> str:
    shown = str(sorted(value, key=str)) if isinstance(value, frozenset) else str(value)
    return shown if len(shown) <= _SHOWN else f"{shown[: _SHOWN - 1]}…"


SHARED = Magic("line", "shared", _parser(), _run, python=("shared",))
