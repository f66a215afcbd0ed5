"""``%%statesql``: SQL over the store."""

from __future__ import annotations

import argparse
from typing import Any

from streamstate.magics.arguments import MagicParser, add_output, add_store, identifier
from streamstate.magics.interrupts import cancelling
from streamstate.magics.magic import Magic
from streamstate.magics.notebook import Notebook, require_cell
from streamstate.magics.reading import reading
from streamstate.snapshots.errors import InvalidArgumentError

__all__ = ["STATESQL"]

_EXAMPLE = "SELECT * FROM delays VERSION AS OF 12 LIMIT 5"


def _parser() -> MagicParser:
    parser = MagicParser(
        "%%statesql",
        "Run the cell as SQL over the store. A query with one state table is a relation of its name, otherwise each\n"
        "of its tables is: delays.op0_left. FROM delays VERSION AS OF 12, VERSION AS OF 'live - 10' and\n"
        "TIMESTAMP AS OF '…' travel in time. delays.history has all versions with _valid_from and _valid_to,\n"
        "delays.changes the change log. Your DataFrames are relations by their variables' names.",
        epilog=f"Example:\n  %%statesql -o busiest\n  {_EXAMPLE}\n\n"
        "  %%statesql --at live-10\n  SELECT name, delays.* FROM delays JOIN airlines USING (carrier)",
    )
    parser.add(
        "--at",
        metavar="EPOCH",
        type=_moment,
        completes="moment",
        help="the epoch of tables that name none: 12, live-10, or a moment such as 2026-03-01T12:00:00+01:00",
    )
    parser.add("--engine", choices=("duckdb", "spark"), default="duckdb", help="what runs it (default: duckdb)")
    parser.add(
        "--frame",
        dest="frames",
        action="append",
        metavar="VAR",
        type=identifier,
        completes="frame",
        help="a variable that is a table of its name: a frame, or the path of a CSV or Parquet file; may be repeated",
    )
    add_store(parser)
    add_output(parser, "keep the result in a variable")
    return parser


def _run(notebook: Notebook, args: argparse.Namespace, cell: str) -> Any:
    __tracebackhide__ = True
    query = require_cell(cell, "%%statesql", _EXAMPLE)
    store = notebook.open(args.store, options=args.storage_options)
    frames = _frames(notebook, query, store.queries(), args.frames or [])
    spark = notebook.spark() if args.engine == "spark" else None
    with reading(notebook.shell) if spark is None else cancelling(spark):
        result = store.sql(query, at=args.at, frames=frames, engine=args.engine, spark=spark).to_pandas()
    notebook.assign(args.output, result)
    return result


def _frames(notebook: Notebook, query: str, queries: list[str], named: list[str]) -> dict[str, Any]:
    """The variables that the statement reads: those that were named, and frames that it names where no query is."""
    from streamstate.state_inspect.sql import is_frame, tables_named

    variables = notebook.shell.user_ns
    for name in named:
        if name not in variables:
            raise InvalidArgumentError(f"%%statesql --frame {name}: there is no variable {name!r}.")
    taken = {one.casefold() for one in queries}
    found = {
        name: variables[name]
        for name in tables_named(query)
        if name.casefold() not in taken and is_frame(variables.get(name))
    }
    return found | {name: variables[name] for name in named}


def _moment(text: str) -> Any:
    """An argument that names an epoch."""
    from streamstate.state_inspect.moments import moment

    try:
        return moment(text)
    except InvalidArgumentError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


STATESQL = Magic("cell", "statesql", _parser(), _run, sql=True)
