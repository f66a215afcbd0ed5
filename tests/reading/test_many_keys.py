"""``lookup_many``: the rows of many keys at one epoch."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa
import pytest
from synthetic import write

import streamstate as ss
from streamstate.errors import InvalidArgumentError, UnknownColumnError
from streamstate.reports import StateTable


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> StateTable:
    """300 keys at epoch 1, all with values that differ from epoch 0."""
    path = tmp_path_factory.mktemp("many") / "store"
    write(path, [{str(key): 0 for key in range(400)}, {str(key): key for key in range(300)}])
    return ss.open_store(path)["q"].at(1).table()


@pytest.mark.parametrize("count", [1, 3, 100, 101, 250])
def test_rows_come_in_the_order_of_the_keys(table: StateTable, count: int) -> None:
    """Few keys or many: each has its row, in the given order."""
    keys = list(range(count))[::-1]
    found = table.lookup_many([{"key": str(key)} for key in keys])
    assert list(found["key"]) == [str(key) for key in keys]
    assert list(found["value"]) == keys


def test_missing_keys_are_left_out(table: StateTable) -> None:
    """Neither a removed key nor an unknown key has a row."""
    assert list(table.lookup_many([{"key": "399"}, {"key": "7"}, {"key": "none"}])["key"]) == ["7"]


@pytest.mark.parametrize("keys", [[], pd.DataFrame({"key": []}), pa.table({"key": pa.array([], pa.string())})])
def test_no_keys_give_no_rows(table: StateTable, keys: object) -> None:
    """The columns are still present."""
    found = table.lookup_many(keys)
    assert len(found) == 0
    assert list(found.columns) == ["key", "value"]


def test_keys_may_be_a_frame(table: StateTable) -> None:
    """A pandas or Arrow table of the key columns is accepted."""
    frame = pd.DataFrame({"key": ["5", "6"]})
    assert list(table.lookup_many(frame)["value"]) == [5, 6]
    assert list(table.lookup_many(pa.Table.from_pandas(frame))["value"]) == [5, 6]


def test_a_column_that_is_not_a_key_is_rejected(table: StateTable) -> None:
    """The error names the key columns."""
    with pytest.raises(UnknownColumnError, match="key"):
        table.lookup_many([{"kye": "5"}])


@pytest.mark.parametrize("keys", [[{"key": {"a": 1}}], ["5"], 5])
def test_invalid_keys_of_lookup_many_are_rejected(table: StateTable, keys: object) -> None:
    """The error says what would be valid."""
    with pytest.raises(InvalidArgumentError, match="key"):
        table.lookup_many(keys)
