"""The versions of a variable are read, compared, kept and exported as a query's state is."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable
from synthetic import write

import streamstate as ss
from streamstate.errors import UnknownEpochError
from streamstate.reports import SharedVariable


@pytest.fixture
def limit(tmp_path: Path) -> SharedVariable:
    """A variable with eleven versions, beside a query."""
    write(tmp_path, [{"a": 1}, {"a": 2}])
    made = ss.shared(tmp_path, "limit", "double", init=0.0)
    for value in range(1, 11):
        made.set(value)
    made.record()
    return made


def test_versions_are_read_as_state(tmp_path: Path, limit: SharedVariable) -> None:
    """In SQL with time travel, as snapshots, as differences and histories, and as a plain Delta table."""
    store = ss.open_store(tmp_path)
    assert store.queries() == ["q"]
    assert store.variables() == ["limit"]
    sql = "SELECT a.value - b.value AS moved FROM shared.limit a, shared.limit VERSION AS OF 4 b"
    assert store.sql(sql).to_arrow()["moved"].to_pylist() == [6.0]
    assert len(store.sql("FROM shared.limit.history").to_arrow()) == 11
    history = store["shared.limit"]
    assert history.captured() == [*range(11)]
    assert history.at(4).table().to_arrow()["value"].to_pylist() == [4.0]
    [row] = history.diff(3, 10).to_pandas().to_dict("records")
    assert {value for value in row.values() if isinstance(value, float)} == {3.0, 10.0}
    assert history.when("value > 6")["held_from"].tolist() == [7]
    with pytest.raises(UnknownEpochError, match=r"11|10"):
        history.at(11)
    log = DeltaTable(tmp_path / "_variables/limit/value").to_pyarrow_table()
    assert max(log["value"].to_pylist()) == 10.0


def test_old_versions_are_dropped_and_others_exported(tmp_path: Path, limit: SharedVariable) -> None:
    """By the same functions; the newest version stays, and is the variable's value."""
    ss.open_store(tmp_path)["shared.limit"].export(tmp_path.parent / "exported", epochs=[3, 10])
    exported = DeltaTable(tmp_path.parent / "exported")
    assert exported.to_pyarrow_table()["value"].to_pylist() == [10.0]
    report = ss.open_store(tmp_path)["shared.limit"].retain(last=2)
    assert (len(report.dropped), report.kept) == (9, 2)
    ss.open_store(tmp_path)["shared.limit"].compact()
    assert ss.open_store(tmp_path)["shared.limit"].captured() == [9, 10]
    assert limit.get() == 10.0
    assert limit.set(11) == 11
    assert limit.history()["version"].tolist() == [9, 10, 11]
