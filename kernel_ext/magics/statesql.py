"""``%%statesql``: SQL over the store."""

from __future__ import annotations

import argparse
from typing import Any

from streamstate.magics.arguments import MagicParser, epoch, identifier
from streamstate.magics.magic import Magic
from streamstate.magics.notebook import Notebook, require_cell

__all__ = ["STATESQL"]

_EXAMPLE = "SELECT * FROM delays VERSION AS OF 12 LIMIT 5"


def _parser() -> MagicParser:
    parser = MagicParser(
        "%%statesql",
        "Run the cell as SQL over the store. A query with one state table is a relation of its name, otherwise each\n"
        "of its tables is: delays.op0_left. FROM delays VERSION AS OF 12 and TIMESTAMP AS OF '…' travel in time.",
        epilog=f"Example:\n  %%statesql -o busiest\n  {_EXAMPLE}",
    )
    parser.add("--at", metavar="EPOCH", type=epoch, completes="epoch", help="the epoch of tables that name none")
    parser.add("--engine", choices=("duckdb",), default="duckdb", help="what runs it (default: duckdb)")
    parser.add("--store", metavar="DIR", completes="path", help="the store to read (default: the last store used)")
    parser.add("-o", dest="output", metavar="VAR", type=identifier, help="keep the result in a variable")
    return parser


def _run(notebook: Notebook, args: argparse.Namespace, cell: str) -> Any:
    __tracebackhide__ = True
    query = require_cell(cell, "%%statesql", _EXAMPLE)
    result = notebook.open(args.store).sql(query, at=args.at).to_pandas()
    notebook.assign(args.output, result)
    return result


STATESQL = Magic("cell", "statesql", _parser(), _run, sql=True)
