"""The text that is copied beside a row of the state browser: a magic, SQL and Python that read the row again."""

from __future__ import annotations

import datetime as dt
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from notebook_shell import Shell, bare_shell  # noqa: F401 (a fixture)
from reading.test_exact_values import BEYOND_A_DOUBLE, NESTED, NOON, REPORTED, Example, exact, examples, oracle, written

import streamstate as ss
from streamstate.widgets import StateBrowser

pytestmark = pytest.mark.slow

TEXTS = ["UA", "", "null", '"null"', "O'Hare", 'a "b" c', "{epoch} $x %y \\n", "two\nlines\t", "ü — 😀", "--at"]
KEYS: dict[pa.DataType, list[Any]] = {
    pa.string(): TEXTS,
    pa.int64(): [0, -7, BEYOND_A_DOUBLE],
    pa.float64(): [float("nan"), 0.1 + 0.2, float("-inf"), 1e300],
    pa.float32(): [0.5, 1e-30],
    pa.bool_(): [True, False],
    pa.binary(): [b"", b"\x00\xff", b"0x41"],
    pa.date32(): [dt.date(2026, 3, 1)],
    pa.timestamp("us", "UTC"): [NOON, NOON + dt.timedelta(microseconds=1)],
    pa.timestamp("us"): [NOON.replace(tzinfo=None)],
    pa.decimal128(38, 18): [Decimal("12345678901234567890.123456789012345678"), Decimal("0E-18")],
    pa.decimal128(38, 0): [Decimal(10**38 - 1)],
    pa.map_(pa.string(), pa.int64()): [[("a", BEYOND_A_DOUBLE), ("b", None)], []],
    pa.map_(pa.int64(), pa.list_(pa.date32())): [[(7, [dt.date(2026, 3, 1), None])]],
}
"""Values of keys; each table has a null, too."""


def keyed() -> Iterator[Any]:
    """An example for each type of a key."""
    for kind, values in KEYS.items():
        rows = [((value, number), (number, None)) for number, value in enumerate([*values, None])]
        yield pytest.param(Example([kind, pa.int64(), pa.int64(), pa.int64()], [rows, []]), id=str(kind))


def check(shell: Shell, example: Example, folder: Path) -> None:
    """Run the three texts of each row."""
    history = written(folder, example)
    for epoch in (0, 1):
        view = StateBrowser(history, epoch=epoch)
        message = view.model.drawing(replace(view.selection, size=25)).message
        expected = [exact(dict(zip("abcd", row, strict=True))) for row in oracle(example, epoch).values()]
        for way, run in (("magic", shell.run), ("SQL", lambda text: row_of(folder, text)), ("Python", in_python)):
            texts = [message["copies"][way] + row["copies"][WAYS.index(way)] for row in message["page"]["rows"]]
            assert sorted(exact(run(text)) for text in texts) == sorted(expected), way


WAYS = ["magic", "SQL", "Python"]


def row_of(folder: Path, sql: str) -> dict[str, Any]:
    """The only row of a statement."""
    from streamstate.state_inspect.python_rows import records

    [row] = records(ss.open_store(folder).sql(sql).to_arrow())
    return row


def in_python(text: str) -> Any:
    """The value of the last line."""
    before, _, last = text.rpartition("\n")
    names: dict[str, Any] = {}
    exec(before, names)
    return eval(last, names)


@pytest.mark.parametrize(
    "example", [*keyed(), pytest.param(REPORTED, id="integers"), pytest.param(NESTED, id="nested")]
)
def test_each_copied_text_reads_its_row(bare_shell: Shell, tmp_path: Path, example: Example) -> None:
    """Quotes, braces, dollars, line ends, NaN, null and windows in keys, and the epoch that was shown."""
    check(bare_shell, example, tmp_path / "a store")


@pytest.mark.exhaustive
@settings(max_examples=300, deadline=None, suppress_health_check=[*HealthCheck])
@given(examples())
def test_many_copied_texts_read_their_rows(bare_shell: Shell, example: Example) -> None:
    """Keys of random types."""
    with tempfile.TemporaryDirectory() as folder:
        check(bare_shell, example, Path(folder))
