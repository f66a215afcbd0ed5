"""A state's fingerprint is the same wherever the same rows are, and another where they are not."""

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
from streamstate.snapshots.change_log import embedded
from streamstate.snapshots.errors import InvalidArgumentError, UnknownEpochError, UnknownTableError
from streamstate.state_inspect.branches.encoding import encoded_row

NARROW = st.floats(width=32)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
LONG = st.integers(-(2**63), 2**63 - 1)
MOMENT = st.datetimes()
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
    "at": (pa.timestamp("us", "UTC"), MOMENT.map(lambda one: one.replace(tzinfo=dt.UTC))),
    "local": (pa.timestamp("us"), MOMENT),
    "legs": (pa.list_(LEG), st.lists(st.none() | st.fixed_dictionaries({"to": TEXT | st.none(), "é": st.just([1])}))),
    "deep": (pa.list_(pa.list_(pa.string())), st.lists(st.none() | st.lists(st.none() | TEXT, max_size=2), max_size=2)),
    "seen": (
        pa.map_(pa.string(), pa.float64()),
        st.dictionaries(TEXT, st.none() | st.floats(), max_size=3).map(lambda one: list(one.items())),
    ),
    "window": (LEG, st.fixed_dictionaries({"to": st.none() | TEXT, "é": st.none() | st.lists(st.integers(-5, 5))})),
}
TYPES = {name: kind for name, (kind, _) in KINDS.items()}
ROW = st.fixed_dictionaries({name: st.none() | one for name, (_, one) in KINDS.items()})


def written(rows: list[dict[str, Any]]) -> list[str]:
    """How the package writes rows."""
    database = embedded()
    database.register("given", pa.Table.from_pylist(rows, schema=pa.schema([*TYPES.items()])))
    return [one for (one,) in database.sql(f"SELECT {encoded_row(TYPES)} FROM given").fetchall()]


@settings(max_examples=150, deadline=None)
@given(st.lists(ROW, min_size=1, max_size=4))
@example([{"double": -0.0, "single": float("nan"), "share": Decimal("0.0000"), "seen": [("b", None), ("a", 1.0)]}])
@example([{"double": 5e-324, "it's": "", "raw": b"", "legs": [], "seen": [], "window": {"to": None, "é": None}}])
def test_rows_are_written_as_the_guide_says(rows: list[dict[str, Any]]) -> None:
    """Every type, whatever it holds, as an implementation of the description alone writes it."""
    assert written(rows) == [fields(row, TYPES).decode() for row in rows]


def test_what_is_different_is_written_differently() -> None:
    """Missing, empty and nothing in it are three things; neighbouring columns do not run into each other."""
    odd: list[dict[str, Any]] = [
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
    assert len({*written(odd)}) == len(odd)


def test_what_is_the_same_is_written_the_same() -> None:
    """Both zeros, every NaN, and a map whatever the order of its entries."""
    pairs: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"double": 0.0}, {"double": -0.0}),
        ({"double": float("nan")}, {"double": -float("nan")}),
        ({"seen": [("a", 1.0), ("b", -0.0)]}, {"seen": [("b", 0.0), ("a", 1.0)]}),
    ]
    for one, other in pairs:
        assert written([one]) == written([other])


STATE = st.dictionaries(st.sampled_from("abcde"), st.integers(0, 2), max_size=5)
HISTORY = st.lists(st.none() | STATE, min_size=1, max_size=7)


@settings(max_examples=25, deadline=None)
@given(HISTORY, st.integers(0, 3))
def test_fingerprints_of_all_epochs_are_those_of_their_rows(history: list[dict[str, int] | None], first: int) -> None:
    """Over gaps and from any epoch on, as summed row by row; equal if, and only if, the rows are equal."""
    with tempfile.TemporaryDirectory() as folder:
        counting(Path(folder), "q", dict(enumerate(history)))
        query = ss.open_store(folder)["q"]
        states = {epoch: state for epoch, state in enumerate(history) if state is not None}
        frame = query.fingerprints()
        told = dict(zip(frame["epoch"], frame["fingerprint"], strict=True))
        expected = {epoch: fingerprint(counted(state)["op0"], COUNTS["op0"][0]) for epoch, state in states.items()}
        assert told == expected
        assert len({*told.values()}) == len({frozenset(state.items()) for state in states.values()})
        later = [epoch for epoch in states if epoch >= first]
        if later:
            part = query.fingerprints("op0", later)
            assert part["fingerprint"].tolist() == [expected[epoch] for epoch in later]
            assert part["rows"].tolist() == [len(states[epoch]) for epoch in later]


def test_partitions_epochs_and_the_order_of_columns_do_not_count(tmp_path: Path) -> None:
    """The same rows from another run: other partitions, other epochs, columns in another order."""
    rows = [{"key": f"k{at}", "count": at} for at in range(50)]
    Branch(tmp_path, "one", COUNTS).add(0, {"op0": rows}, partitions=2)
    turned = {"op0": ({"key": pa.string(), "count": pa.int32()}, 1)}
    other = Branch(tmp_path, "other", turned)
    other.add(3, {"op0": rows[::-1][:10]})
    other.add(4, {"op0": rows[::-1]}, partitions=7)
    store = ss.open_store(tmp_path)
    one, last = (store[name].fingerprints()["fingerprint"].iloc[-1] for name in ("one", "other"))
    assert one == last == fingerprint(rows, COUNTS["op0"][0])


def test_a_fork_has_its_parents_fingerprints_before_its_own(tmp_path: Path) -> None:
    """Where it is asked for them; of itself it tells those of its own epochs."""
    counting(tmp_path, "delays", {0: {"a": 1}, 1: {"a": 2}, 2: {"a": 3}})
    counting(tmp_path, "what_if", {1: {"a": 2}, 2: {"a": 9}}, ("delays", 1))
    store = ss.open_store(tmp_path)
    delays, fork = store["delays"].fingerprints(), store["what_if"].fingerprints(epochs=range(3))
    assert store["what_if"].fingerprints()["epoch"].tolist() == [1, 2]
    assert (fork["fingerprint"] == delays["fingerprint"]).tolist() == [True, True, False]


def test_an_empty_state_is_all_zeros(tmp_path: Path) -> None:
    """A sum of nothing; and no epoch has no row."""
    counting(tmp_path, "q", {0: {}})
    told = ss.open_store(tmp_path)["q"].fingerprints()
    assert told.values.tolist() == [[0, "op0", 0, "0" * 32]]
    Branch(tmp_path, "none", COUNTS)
    assert ss.open_store(tmp_path)["none"].fingerprints().columns.tolist() == ["epoch", "table", "rows", "fingerprint"]


def test_what_cannot_be_meant_is_refused(tmp_path: Path) -> None:
    """An epoch that is not there, a table that is not there, and what is no list of epochs."""
    counting(tmp_path, "q", {0: {"a": 1}})
    query = ss.open_store(tmp_path)["q"]
    with pytest.raises(UnknownEpochError, match="nearest captured: 0"):
        query.fingerprints(epochs=[7])
    with pytest.raises(UnknownTableError, match="op1"):
        query.fingerprints("op1")
    wrong: list[Any] = [3, "live", [], [True]]
    for epochs in wrong:
        with pytest.raises(InvalidArgumentError, match="epochs"):
            query.fingerprints(epochs=epochs)


def test_sha_256_of_the_engine_is_everybodys() -> None:
    """The hash is the standard's: 128 bits of it, most significant first."""
    [(found,)] = embedded().execute("SELECT ('0x' || left(sha256('abc'), 32))::UHUGEINT").fetchall()
    assert found == 0xBA7816BF8F01CFEA414140DE5DAE2223
