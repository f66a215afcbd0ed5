"""A process that runs SQL statements of viewers: whatever a statement does, it can only end this process.

The first line of its standard input names the store; each line after it has a statement, and is answered by one line.
Both are JSON. The process ends after a statement that left it with much memory, and says so in the answer.
:mod:`streamstate.widgets.page.statements` starts it, and kills it if a statement takes too long.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamstate.errors import StreamStateError, first_line
from streamstate.state_inspect import open_store
from streamstate.state_inspect.cell_text import cell
from streamstate.state_inspect.temporal_index.query_interrupts import time_limit

if TYPE_CHECKING:
    import pyarrow as pa

    from streamstate.state_inspect import Store

SECONDS = 10.0
"""The time that a statement may take, including loading the state that it reads."""
ROWS = 1_000
"""The most rows of a result."""
ANSWER = 1_000_000
"""The most characters of a result's cells; further rows are left out."""
_INDEX = "512MB"
"""The memory of the index, which keeps the state that statements have read."""
_MEMORY, _KEPT = 3 << 29, 1 << 30
"""Bytes of memory that a statement may take, and that the process may keep after it."""
_FILE = 1 << 29
"""Bytes of a temporary file."""


def main() -> None:
    """Answer the line that names the store, and then statements until the input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # so that what a library prints is not taken for an answer
    say = partial(print, file=answers, flush=True)
    where = json.loads(sys.stdin.readline())
    try:
        store = open_store(where["path"], storage_options=where["options"], memory_limit=_INDEX)
    except StreamStateError as problem:
        say(json.dumps({"problem": str(problem)}))
        return
    before = _taken()
    _limit(before + _MEMORY)
    say(json.dumps({}))
    for line in sys.stdin:
        answer, large = _answer(store, json.loads(line)), _taken() > before + _KEPT
        say(json.dumps(answer | {"last": large}))
        if large:
            return


def _taken() -> int:
    """Bytes of memory that this process has; 0 if the system does not say."""
    with contextlib.suppress(OSError):
        found = re.search(r"VmData:\s+(\d+) kB", Path("/proc/self/status").read_text())
        return int(found[1]) * 1024 if found else 0
    return 0


def _limit(memory: int) -> None:
    """Limit the memory and the files of this process, if the system can."""
    try:
        import resource
    except ImportError:  # Windows
        return
    limits = {"RLIMIT_CORE": 0, "RLIMIT_FSIZE": _FILE} | ({"RLIMIT_DATA": memory} if _taken() else {})
    for name, limit in limits.items():
        with contextlib.suppress(ValueError, OSError):  # the administrator's own limit is lower
            resource.setrlimit(getattr(resource, name), (limit, limit))


def _answer(store: Store, text: str) -> dict[str, Any]:
    """Return the result of a statement as JSON types, or what is wrong with it."""
    began = time.monotonic()
    try:
        with time_limit(SECONDS, "The statement"):
            result = store.sql(text)
            found = result.first(ROWS + 1)
        rows = list(_rows(found))
    except StreamStateError as problem:
        return {"problem": str(problem)}
    except Exception as problem:  # noqa: BLE001 (whatever a statement causes, the page shows it)
        return {"problem": f"The statement failed: {first_line(problem)}"}
    return {
        "columns": result.columns,
        "rows": rows,
        "more": found.num_rows > len(rows),
        "epochs": result.epochs,
        "seconds": time.monotonic() - began,
    }


def _rows(found: pa.Table) -> Iterator[list[dict[str, Any]]]:
    """Yield the first rows as cells, as many as fit."""
    left = ANSWER
    values = [column.to_pylist() for column in found.slice(0, ROWS).columns]  # two columns may have the same name
    for row in zip(*values, strict=True):
        cells = [vars(cell(value)) for value in row]
        left -= sum(len(each["text"]) + len(each["whole"] or "") + 40 for each in cells)
        if left < 0:
            return
        yield cells


if __name__ == "__main__":
    main()
