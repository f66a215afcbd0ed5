"""The history of a key, in one table and across all tables that share it."""

from __future__ import annotations

from pathlib import Path

import pytest
from operators.processors import TRANSFORM
from operators.running import Run
from pyspark.sql import SparkSession
from synthetic import State, write

import streamstate as ss
from streamstate.errors import InvalidArgumentError, UnknownColumnError
from streamstate.reports import History

pytestmark = pytest.mark.usefixtures("read_either_way")

STATES: list[State | None] = [{"a": 1}, {"a": 2, "b": 5}, None, {"b": 6, "a": 2}, {"b": 6}]


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    """A query ``q`` with a gap at epoch 2."""
    folder = tmp_path_factory.mktemp("life")
    write(folder, STATES)
    return ss.open_store(folder)["q"]


@pytest.fixture(scope="module")
def remembered(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> History:
    """A ``transformWithState`` query with a value, a list, a map and timers."""
    run = Run(spark, tmp_path_factory.mktemp("remembered"))
    for epoch in range(3):
        run.start(TRANSFORM["rows, event time and timers"], epochs=range(epoch, epoch + 1))
    run.capture()
    return run.history


def test_the_last_column_of_a_key_history_is_the_cause(history: History) -> None:
    """The other columns keep their positions; rows found after a gap have no known cause."""
    found = history.key_history(key="a")
    assert list(found.columns) == ["epoch", "change", "committed_at", "value", "cause"]
    assert found["change"].tolist() == ["put", "put", "keyframe", "delete"]
    assert set(found["cause"]) == {"unknown"}


def test_a_key_that_never_was_has_no_history(history: History) -> None:
    """The frame has its columns and no rows."""
    assert history.key_history(key="nobody").empty


@pytest.mark.exhaustive
def test_a_history_across_tables(remembered: History) -> None:
    """Every table whose key has the column is included, with all rows of the key by ascending epoch."""
    found = remembered.key_history(k="k1")
    assert [*found.columns[:4], found.columns[-1]] == ["epoch", "table", "change", "committed_at", "cause"]
    assert set(found["table"]) == {"op0_total", "op0_seen", "op0_by_kind", "op0_timers"}
    assert found["epoch"].is_monotonic_increasing
    assert {"_position", "kind", "even", "expiration_timestamp_ms", "tags"} < set(found.columns)
    own = found[found["table"] == "op0_total"]
    alone = remembered.key_history("op0_total", k="k1")
    assert own["epoch"].tolist() == alone["epoch"].tolist()
    assert own["cause"].tolist() == alone["cause"].tolist()
    assert own["last"].tolist() == alone["last"].tolist()


@pytest.mark.exhaustive
def test_names_that_two_tables_use_for_different_types(remembered: History) -> None:
    """A column is identified by name and type, whichever table it is from."""
    found = remembered.key_history(k="k1")
    with_n = set(found[found["n"].notna()]["table"])
    assert with_n == {"op0_total", "op0_by_kind"}


def test_more_key_columns_narrow_the_tables(remembered: History) -> None:
    """Only tables whose key has all of the columns are included."""
    found = remembered.key_history(k="k1", kind="r1")
    assert set(found["table"]) == {"op0_by_kind"}
    assert "kind" not in found.columns


def test_an_unknown_key_column_error_lists_each_tables_key(remembered: History) -> None:
    """The right column can be chosen from the message."""
    with pytest.raises(UnknownColumnError, match=r"key column carrier\.(.|\n)*op0_seen: k, _position"):
        remembered.key_history(carrier="UA")
    with pytest.raises(UnknownColumnError, match="kind, _position together"):
        remembered.key_history(kind="r1", _position=0)
    with pytest.raises(InvalidArgumentError, match="value for at least one key column"):
        remembered.key_history()


def test_a_store_without_recorded_operators(tmp_path: Path) -> None:
    """Its causes are unknown, and nothing else is missing."""
    write(tmp_path, STATES)
    assert ss.open_store(tmp_path)["q"].key_history(key="b")["cause"].unique().tolist() == ["unknown"]
