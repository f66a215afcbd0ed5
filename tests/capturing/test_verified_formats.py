"""The store records the formats that Spark has confirmed, for the captures that follow."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
import synthetic

from streamstate.snapshots.checkpoint.decoding.state_table_format import TableFormat
from streamstate.snapshots.store.delta import append_once
from streamstate.snapshots.store.delta.commits import Handle
from streamstate.snapshots.store.layout import Layout
from streamstate.snapshots.store.table_log import VerifiedFormats

FORMAT = TableFormat(0, "", 0, "RocksDB", {"type": "struct", "fields": []}, {"type": "struct", "fields": []}, ())
NOT_RECORDED = [
    ("whole state", FORMAT, "4.3.0"),
    ("changes", replace(FORMAT, row_checksums=True), "4.3.0"),
    ("changes", FORMAT, "4.3.1"),
]


class Capture:
    """One capture of a query, as far as it knows the changelog and commits to it."""

    def __init__(self, store: Path, query: str = "id") -> None:
        self._log = Handle(Layout.at(store).changelog("q", "op0"))
        self.verified = VerifiedFormats(self._log, f"{query}/op0")

    def has(self, what: str = "changes", layout: TableFormat = FORMAT, spark: str = "4.3.0") -> bool:
        """Return whether a capture would rely on an earlier comparison."""
        return self.verified.has(what, layout, spark)

    def found(self, *, equal: bool) -> None:
        """Compare."""
        self.verified.note("changes", FORMAT, "4.3.0", equal=equal)

    def commit(self, epoch: int) -> None:
        """Commit an epoch, and what was found."""
        rows = pa.Table.from_pylist([{"_epoch": epoch, "_change": "put", "key": "a", "value": 1}], schema=synthetic.LOG)
        append_once(self._log, "id/op0", epoch, lambda _: rows, marks=self.verified.pending)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store from before comparisons were recorded."""
    synthetic.write(tmp_path, [{"a": 1}])
    return tmp_path


def test_a_comparison_counts_for_the_captures_that_follow(store: Path) -> None:
    """Once it is committed."""
    capture = Capture(store)
    assert not capture.has()
    capture.found(equal=True)
    assert not Capture(store).has()
    capture.commit(1)
    assert Capture(store).has()


@pytest.mark.parametrize(("what", "layout", "spark"), NOT_RECORDED)
def test_what_was_not_compared_is_compared(store: Path, what: str, layout: TableFormat, spark: str) -> None:
    """Other rows, a format that changed, and another version of Spark."""
    capture = Capture(store)
    capture.found(equal=True)
    capture.commit(1)
    assert not Capture(store).has(what, layout, spark)


def test_another_querys_comparisons_do_not_count(store: Path) -> None:
    """A store that was prepared without knowing the query's id cannot switch them off."""
    capture = Capture(store, query="another")
    capture.found(equal=True)
    capture.commit(1)
    assert not Capture(store).has()


@pytest.mark.parametrize("equal_first", [True, False])
def test_a_difference_outlives_a_confirmation(store: Path, *, equal_first: bool) -> None:
    """Of two captures at the same time one may have compared an epoch that was decoded right by chance."""
    captures = [Capture(store), Capture(store)]
    for epoch, capture, equal in zip((1, 2), captures, (equal_first, not equal_first), strict=True):
        capture.found(equal=equal)
        capture.commit(epoch)
    assert not Capture(store).has()


def test_a_table_that_does_not_exist_yet_has_no_comparisons(tmp_path: Path) -> None:
    """The first capture creates it."""
    assert not Capture(tmp_path).has()
