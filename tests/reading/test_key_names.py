"""A key can be given as a mapping, so that its columns may have any name, including those of a method's arguments."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from browser.stores import Written

import streamstate as ss
from streamstate.errors import InvalidArgumentError, UnknownColumnError
from streamstate.reports import History
from streamstate.state_inspect.keys.key_rows import row_number_column
from streamstate.state_inspect.keys.key_text import parsed_value, spelled

pytestmark = pytest.mark.usefixtures("read_from_files")

NAMES = ["table", "ancestors", "self", "key", "per_key", "interval"]
KEY = {name: f"{name} of a" for name in NAMES}


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    """A table whose key columns are named like arguments; one key, over two epochs."""
    path = tmp_path_factory.mktemp("names")
    columns = {**dict.fromkeys(NAMES, pa.string()), "n": pa.int64()}
    written = Written(path, "q", {"op0": (columns, len(NAMES))})
    for epoch in range(2):
        written.add({"op0": {tuple(KEY.values()): (epoch,)}})
    return ss.open_store(path)["q"]


def test_a_key_mapping_is_accepted_by_lookups(history: History) -> None:
    """In a state table, over time, and in all tables."""
    assert history.live().table().lookup(key=KEY) == {**KEY, "n": 1}
    assert history.key_history("op0", key=KEY)["n"].tolist() == [0, 1]
    assert history.key_history(key=KEY, ancestors=True)["n"].tolist() == [0, 1]
    assert history.key_history(key={"table": "table of a"})["epoch"].tolist() == [0, 1]


def test_a_key_mapping_is_accepted_by_conditions(history: History) -> None:
    """``first``, ``when`` and ``watch``."""
    assert history.first("n = 1", key={"interval": "interval of a"}) == 1
    assert history.when("n = 1", table="op0", key={"per_key": "another"}).empty
    with history.watch("n > 1", print, interval=60, key={"interval": "interval of a", "table": "table of a"}) as watch:
        assert watch.running


def test_views_show_keys_of_any_column_name(history: History) -> None:
    """Whatever the names of the key columns are."""
    from streamstate.widgets import KeyHistoryView, StateBrowser

    browser = StateBrowser(history)
    browser.look(key=KEY)
    assert [change.epoch for change in browser.model.drawing(browser.selection).kept.history.changes] == [1, 0]
    assert "op0" in repr(KeyHistoryView(history, "op0", KEY))


@pytest.mark.parametrize("extra", [{"n": 1}, {"other": 1}])
def test_a_key_given_twice_is_rejected(history: History, extra: dict[str, Any]) -> None:
    """A key is a mapping or keywords, not both; names that are not key columns are rejected too."""
    with pytest.raises(InvalidArgumentError, match="as keyword arguments, not both"):
        history.live().table().lookup(key=KEY, **extra)
    with pytest.raises(UnknownColumnError):
        history.live().table().lookup(key={**KEY, **extra})


def test_a_column_named_key_can_be_given_by_keyword(tmp_path: Path) -> None:
    """A value that is not a mapping is the column's value."""
    written = Written(tmp_path, "q", {"op0": ({"key": pa.string(), "n": pa.int64()}, 1)})
    written.add({"op0": {("a",): (1,)}})
    table = ss.open_store(tmp_path)["q"].live().table()
    assert table.lookup(key="a") == table.lookup(key={"key": "a"}) == {"key": "a", "n": 1}


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("UA", pa.string()),
        ("", pa.string()),
        (-7, pa.int64()),
        (1.5, pa.float64()),
        (True, pa.bool_()),
        (Decimal("12.50"), pa.decimal128(9, 2)),
        (date(2026, 3, 1), pa.date32()),
        (datetime(2026, 3, 1, 12, 0, 0, 5, tzinfo=UTC), pa.timestamp("us", "UTC")),
        ({"a": 1, "b": ["x", None]}, pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))])),
        (None, pa.int64()),
        (None, pa.string()),
        ("null", pa.string()),
        ('"quoted"', pa.string()),
        ("two\nlines", pa.string()),
        (b"\x00\xff", pa.binary()),
        (float("inf"), pa.float64()),
        ([Decimal("1.10"), None], pa.list_(pa.decimal128(9, 2))),
        ([b"\xff"], pa.list_(pa.binary())),
        ([datetime(2026, 3, 1, tzinfo=UTC)], pa.list_(pa.timestamp("us", "UTC"))),
    ],
)
def test_the_text_of_a_value_survives_a_round_trip(value: object, kind: pa.DataType) -> None:
    """``--key`` and the key field accept what completion offers and the views show."""
    assert parsed_value(spelled(value), kind) == value


def test_text_of_the_wrong_type_is_rejected() -> None:
    """It is not taken for another value."""
    struct = pa.struct([("a", pa.int64())])
    for text, kind in (("seven", pa.int64()), ("1.5", pa.int64()), ("[1", pa.list_(pa.int64())), ('{"b": 1}', struct)):
        with pytest.raises(ValueError, match=r".*"):
            parsed_value(text, kind)


def test_the_column_that_numbers_the_rows_of_a_join() -> None:
    """It is the last of a side's key, under the name that Spark had left for it."""
    assert row_number_column("op0_left", ["field0", "index"]) == "index"
    assert row_number_column("op0_right", ["index", "index_2"]) == "index_2"
    assert row_number_column("op0_left", ["index"]) is None
    assert row_number_column("op0", ["user", "index"]) is None
