"""``%%statesql``: SQL over the store."""

from __future__ import annotations

import argparse
from typing import Any

from streamstate.command_line.argument_types import AT_HELP, epoch_or_time, identifier
from streamstate.errors import InvalidArgumentError
from streamstate.magics.arguments import MagicParser, add_output, add_store
from streamstate.magics.magic import Magic
from streamstate.magics.notebook_context import NotebookContext, require_cell
from streamstate.magics.progress import in_spark, loading

_EXAMPLE = "SELECT * FROM delays VERSION AS OF 12 LIMIT 5"


def _parser() -> MagicParser:
    parser = MagicParser(
        "%%statesql",
        "Run the cell as SQL over the store. A query with one state table is a relation of its name; otherwise each\n"
        "of its tables is one: delays.op0_left. FROM delays VERSION AS OF 12, VERSION AS OF 'live - 10' and\n"
        "TIMESTAMP AS OF '…' read past epochs. delays.history has all versions with _valid_from and _valid_to,\n"
        "delays.changes the changelog. Your DataFrames are relations, by the names of their variables.",
        epilog=f"Example:\n  %%statesql -o busiest\n  {_EXAMPLE}\n\n"
        "  %%statesql --at live-10\n  SELECT name, delays.* FROM delays JOIN airlines USING (carrier)",
    )
    parser.add(
        "--at",
        metavar="EPOCH",
        type=epoch_or_time,
        completes="moment",
        help=f"the epoch of tables without one in the SQL: {AT_HELP}",
    )
    parser.add("--engine", choices=("duckdb", "spark"), default="duckdb", help="the SQL engine (default: duckdb)")
    parser.add(
        "--frame",
        dest="frames",
        action="append",
        metavar="VAR",
        type=identifier,
        completes="frame",
        help="a variable to use as a table: a DataFrame, or the path of a CSV or Parquet file; may be repeated",
    )
    add_store(parser)
    add_output(parser, "keep the result in a variable")
    return parser


def _run(notebook: NotebookContext, args: argparse.Namespace, cell: str) -> Any:
    __tracebackhide__ = True
    from streamstate.widgets.tables.shown_frame import ShownFrame  # loads pandas, which is slow

    query = require_cell(cell, "%%statesql", _EXAMPLE)
    store = notebook.open(args.store, options=args.storage_options)
    frames = _frames(notebook, query, store.queries(), args.frames or [])
    spark = notebook.spark() if args.engine == "spark" else None
    with loading(notebook.shell) if spark is None else in_spark(notebook.shell):
        result = store.sql(query, at=args.at, frames=frames, engine=args.engine, spark=spark).to_pandas()
    shown = ShownFrame.of(result)
    notebook.assign(args.output, shown)
    return shown


def _frames(notebook: NotebookContext, query: str, queries: list[str], named: list[str]) -> dict[str, Any]:
    """The variables that the statement reads: those given with ``--frame``, and DataFrames that it names."""
    from streamstate.state_inspect.sql.statement import tables_named
    from streamstate.state_inspect.sql.user_data import is_frame

    variables = notebook.shell.user_ns
    for name in named:
        if name not in variables:
            raise InvalidArgumentError(f"Invalid --frame {name}: there is no variable {name!r}.")
    taken = {query_name.casefold() for query_name in queries}
    found = {
        name: variables[name]
        for name in tables_named(query)
        if name.casefold() not in taken and is_frame(variables.get(name))
    }
    return found | {name: variables[name] for name in named}


STATESQL = Magic("cell", "statesql", _parser(), _run, python=("Store.sql",), sql=True)
