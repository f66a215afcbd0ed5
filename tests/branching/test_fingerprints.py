"""Two states have the same fingerprint if and only if they have the same rows."""

from __future__ import annotations

import datetime as dt
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from branch_stores import COUNTS, Branch, counted, counting
from fingerprint_encoding import fields, fingerprint
from hypothesis import example, given, settings
from hypothesis import strategies as st

import streamstate as ss
from streamstate.errors import InvalidArgumentError, UnknownEpochError, UnknownTableError
from streamstate.snapshots.store.duckdb_sql import embedded
from streamstate.state_inspect.branches.fingerprints import encoded_row

NARROW = st.floats(width=32)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
LONG = st.integers(-(2**63), 2**63 - 1)
TIMESTAMP = st.datetimes()
LEG = pa.struct([("to", pa.string()), ("é", pa.list_(pa.int32()))])
KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "flag": (pa.bool_(), st.booleans()),
    "small": (pa.int8(), st.integers(-128, 127)),
    "long": (pa.int64(), LONG),
    "single": (pa.float32(), NARROW),
    "double": (pa.float64(), st.floats()),
    "money": (pa.decimal128(10, 3), st.decimals(-9999, 9999, places=3)),
    "share": (pa.decimal128(4, 4), st.decimals(Decimal("-0.9999"), Decimal("0.9999"), places=4)),
    "whole": (pa.decimal128(38, 0), st.integers(-(10**37), 10**37).map(Decimal)),
    "it's": (pa.string(), TEXT),
    "raw": (pa.binary(), st.binary(max_size=5)),
    "day": (pa.date32(), st.dates()),
    "at": (pa.timestamp("us", "UTC"), TIMESTAMP.map(lambda timestamp: timestamp.replace(tzinfo=dt.UTC))),
    "local": (pa.timestamp("us"), TIMESTAMP),
    "legs": (pa.list_(LEG), st.lists(st.none() | st.fixed_dictionaries({"to": TEXT | st.none(), "é": st.just([1])}))),
    "deep": (pa.list_(pa.list_(pa.string())), st.lists(st.none() | st.lists(st.none() | TEXT, max_size=2), max_size=2)),
    "seen": (
        pa.map_(pa.string(), pa.float64()),
        st.dictionaries(TEXT, st.none() | st.floats(), max_size=3).map(lambda entries: list(entries.items())),
    ),
    "window": (LEG, st.fixed_dictionaries({"to": st.none() | TEXT, "é": st.none() | st.lists(st.integers(-5, 5))})),
}
TYPES = {name: kind for name, (kind, _) in KINDS.items()}
ROW = st.fixed_dictionaries({name: st.none() | values for name, (_, values) in KINDS.items()})


def encoded(rows: list[dict[str, Any]]) -> list[str]:
    """Rows as the package encodes them."""
    database = embedded()
    database.register("given", pa.Table.from_pylist(rows, schema=pa.schema([*TYPES.items()])))
    return [row for (row,) in database.sql(f"SELECT {encoded_row(TYPES)} FROM given").fetchall()]


@pytest.mark.exhaustive
@settings(max_examples=150, deadline=None)
@given(st.lists(ROW, min_size=1, max_size=4))
@example([{"double": -0.0, "single": float("nan"), "share": Decimal("0.0000"), "seen": [("b", None), ("a", 1.0)]}])
@example([{"double": 5e-324, "it's": "", "raw": b"", "legs": [], "seen": [], "window": {"to": None, "é": None}}])
def test_rows_are_encoded_as_documented(rows: list[dict[str, Any]]) -> None:
    """Values of every type are encoded as by an independent implementation of the documentation."""
    assert encoded(rows) == [fields(row, TYPES).decode() for row in rows]


def test_different_values_have_different_encodings() -> None:
    """Null, an empty value and a value that contains null are distinct. Adjacent items are not confused."""
    rows: list[dict[str, Any]] = [
        {},
        {"it's": ""},
        {"it's": "N"},
        {"raw": b""},
        {"legs": []},
        {"legs": [None]},
        {"legs": [{"to": None, "é": None}]},
        {"deep": [["a", "b"]]},
        {"deep": [["a"], ["b"]]},
        {"deep": [["aS1:b"]]},
        {"seen": []},
        {"seen": [("a", None)]},
        {"window": {"to": None, "é": None}},
        {"window": {"to": "", "é": None}},
        {"long": 1},
        {"small": 1},
        {"whole": Decimal(1)},
        {"double": 1.0},
        {"at": dt.datetime(1970, 1, 1, tzinfo=dt.UTC)},
        {"local": dt.datetime.fromisoformat("1970-01-01")},
        {"day": dt.date(1970, 1, 1)},
    ]
    assert len({*encoded(rows)}) == len(rows)


def test_equal_values_have_the_same_encoding() -> None:
    """Zero equals negative zero, NaN equals NaN, and the order of a map's entries does not matter."""
    pairs: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"double": 0.0}, {"double": -0.0}),
        ({"double": float("nan")}, {"double": -float("nan")}),
        ({"seen": [("a", 1.0), ("b", -0.0)]}, {"seen": [("b", 0.0), ("a", 1.0)]}),
    ]
    for left, right in pairs:
        assert encoded([left]) == encoded([right])


STATE = st.dictionaries(st.sampled_from("abcde"), st.integers(0, 2), max_size=5)
HISTORY = st.lists(st.none() | STATE, min_size=1, max_size=7)


@pytest.mark.exhaustive
@settings(max_examples=25, deadline=None)
@given(HISTORY, st.integers(0, 3))
def test_a_fingerprint_is_the_sum_over_the_rows(history: list[dict[str, int] | None], first: int) -> None:
    """This holds with gaps and from any first epoch. Fingerprints are equal if and only if the rows are."""
    with tempfile.TemporaryDirectory() as folder:
        counting(Path(folder), "q", dict(enumerate(history)))
        query = ss.open_store(folder)["q"]
        states = {epoch: state for epoch, state in enumerate(history) if state is not None}
        frame = query.fingerprints()
        actual = dict(zip(frame["epoch"], frame["fingerprint"], strict=True))
        expected = {epoch: fingerprint(counted(state)["op0"], COUNTS["op0"][0]) for epoch, state in states.items()}
        assert actual == expected
        assert len({*actual.values()}) == len({frozenset(state.items()) for state in states.values()})
        later = [epoch for epoch in states if epoch >= first]
        if later:
            part = query.fingerprints("op0", later)
            assert part["fingerprint"].tolist() == [expected[epoch] for epoch in later]
            assert part["rows"].tolist() == [len(states[epoch]) for epoch in later]


def test_a_fingerprint_depends_on_the_rows_only(tmp_path: Path) -> None:
    """The epoch, the partitions, the order of rows and the size of an integer type do not change it."""
    rows = [{"key": f"k{number}", "count": number} for number in range(50)]
    Branch(tmp_path, "one", COUNTS).add(0, {"op0": rows}, partitions=2)
    as_int32 = {"op0": ({"key": pa.string(), "count": pa.int32()}, 1)}
    other = Branch(tmp_path, "other", as_int32)
    other.add(3, {"op0": rows[::-1][:10]})
    other.add(4, {"op0": rows[::-1]}, partitions=7)
    store = ss.open_store(tmp_path)
    left, right = (store[name].fingerprints()["fingerprint"].iloc[-1] for name in ("one", "other"))
    assert left == right == fingerprint(rows, COUNTS["op0"][0])


def test_fingerprints_of_a_fork_can_include_epochs_of_its_parent(tmp_path: Path) -> None:
    """By default, a fork has fingerprints of its own epochs only."""
    counting(tmp_path, "delays", {0: {"a": 1}, 1: {"a": 2}, 2: {"a": 3}})
    counting(tmp_path, "what_if", {1: {"a": 2}, 2: {"a": 9}}, ("delays", 1))
    store = ss.open_store(tmp_path)
    delays, fork = store["delays"].fingerprints(), store["what_if"].fingerprints(epochs=range(3))
    assert store["what_if"].fingerprints()["epoch"].tolist() == [1, 2]
    assert (fork["fingerprint"] == delays["fingerprint"]).tolist() == [True, True, False]


def test_the_fingerprint_of_an_empty_state_is_zero(tmp_path: Path) -> None:
    """A query without epochs has a frame without rows."""
    counting(tmp_path, "q", {0: {}})
    frame = ss.open_store(tmp_path)["q"].fingerprints()
    assert frame.values.tolist() == [[0, "op0", 0, "0" * 32]]
    Branch(tmp_path, "none", COUNTS)
    assert ss.open_store(tmp_path)["none"].fingerprints().columns.tolist() == ["epoch", "table", "rows", "fingerprint"]


def test_invalid_arguments_are_rejected(tmp_path: Path) -> None:
    """Unknown epochs, unknown tables, and values that are not a list of epochs raise an error."""
    counting(tmp_path, "q", {0: {"a": 1}})
    query = ss.open_store(tmp_path)["q"]
    with pytest.raises(UnknownEpochError, match="nearest captured: 0"):
        query.fingerprints(epochs=[7])
    with pytest.raises(UnknownTableError, match="op1"):
        query.fingerprints("op1")
    invalid: list[Any] = [3, "live", [], [True]]
    for epochs in invalid:
        with pytest.raises(InvalidArgumentError, match="epochs"):
            query.fingerprints(epochs=epochs)


def test_duckdb_computes_standard_sha_256() -> None:
    """The first 128 bits are read as a big-endian integer."""
    [(digest,)] = embedded().execute("SELECT ('0x' || left(sha256('abc'), 32))::UHUGEINT").fetchall()
    assert digest == 0xBA7816BF8F01CFEA414140DE5DAE2223
