"""Consistent cuts: epochs of several queries that reflect the same input or the same time, and when none exist."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from conftest import Source, letters, run
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from synthetic import START, write

import streamstate as ss
from streamstate.errors import (
    InvalidArgumentError,
    InvalidSQLError,
    UnknownCutError,
    UnknownEpochError,
    UnknownNameError,
    UnknownQueryError,
)
from streamstate.reports import Store
from streamstate.state_inspect.cuts.choice import connected, newest_agreeing, oldest_agreeing
from streamstate.state_inspect.cuts.source_positions import QueryStreams

EXAMPLES = settings(max_examples=150, deadline=None)


def files(*numbers: int | None, under: str = "file:///in") -> list[dict[str, Any]]:
    """The manifest's facts for epochs that have read this many files of a folder."""
    start = sum(under.partition("/day=")[0].encode()) << 64  # the first files of another folder differ

    def fact(number: int) -> str:
        digest = f"{start + number:032x}"
        return json.dumps([{"kind": "files", "files": number, "digest": digest, "under": under, "batch": 0}])

    return [
        {
            "offsets": json.dumps([None if number is None else {"logOffset": epoch}]),
            "sources": None if number is None else fact(number),
        }
        for epoch, number in enumerate(numbers)
    ]


def joined(*parts: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The facts of a query with several sources, combined from queries with one source each."""
    return [
        {name: json.dumps([json.loads(fact[name] or "[null]")[0] for fact in epoch]) for name in ("offsets", "sources")}
        for epoch in zip(*parts, strict=True)
    ]


def kafka(*offsets: dict[str, Any], start: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """The manifest's facts for epochs at these Kafka offsets."""
    fact = {"kind": "offset", "start": start or {}}
    return [{"offsets": json.dumps([offset]), "sources": json.dumps([fact])} for offset in offsets]


def stored(path: Path, **queries: Sequence[dict[str, Any]]) -> Store:
    """A store of these queries; at epoch e the state of each is a key ``a`` with value e, committed after e minutes."""
    for name, facts in queries.items():
        write(path, [{"a": epoch} for epoch in range(len(facts))], query=name, facts=facts)
    return ss.open_store(path)


def drawn_streams(data: st.DataObject, name: str, streams: Sequence[str]) -> QueryStreams:
    """A query that reads streams further and further, sometimes standing still for an epoch."""
    steps = data.draw(st.lists(st.tuples(*[st.integers(0, 2) for _ in streams]), min_size=1, max_size=6))
    at = itertools.accumulate(steps, lambda before, step: tuple(map(sum, zip(before, step, strict=True))))
    return QueryStreams(name, {epoch: dict(zip(streams, offsets, strict=True)) for epoch, offsets in enumerate(at)})


@EXAMPLES
@given(st.data())
def test_newest_and_oldest_agreeing_epochs_match_brute_force(data: st.DataObject) -> None:
    """The results match trying every combination of epochs, for any queries, streams and allowed epochs."""
    reads = data.draw(st.lists(st.sampled_from([("x",), ("y",), ("x", "y"), ("x", "z")]), min_size=1, max_size=3))
    streams = [drawn_streams(data, f"q{number}", names) for number, names in enumerate(reads)]
    allowed = {}
    if data.draw(st.booleans()):
        allowed["q0"] = data.draw(st.sets(st.sampled_from([*streams[0].positions]), min_size=1))
    agreeing = [
        epochs
        for epochs in itertools.product(*(query.positions for query in streams))
        if epochs[0] in allowed.get("q0", streams[0].positions)
        and all(
            len(
                {
                    query.positions[epoch][stream]
                    for query, epoch in zip(streams, epochs, strict=True)
                    if stream in query.streams
                }
            )
            <= 1
            for stream in "xyz"
        )
    ]
    found = newest_agreeing(streams, allowed)
    oldest = oldest_agreeing(streams, allowed)
    if not agreeing:
        assert (found, oldest) == (None, None)
        return
    assert found is not None
    assert oldest is not None
    # The maximum of every query: no query is at a later epoch in any other cut.
    assert tuple(found.values()) == tuple(map(max, zip(*agreeing, strict=True)))
    assert tuple(oldest.values()) in agreeing
    assert oldest["q0"] == min(epochs[0] for epochs in agreeing)


@EXAMPLES
@given(st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=5), min_size=2, max_size=3))
def test_a_cut_is_found_if_positions_went_back(places: list[list[int]]) -> None:
    """This happens when a Kafka topic is recreated: an existing cut is found, and its epochs agree."""
    streams = [
        QueryStreams(f"q{number}", {epoch: {"x": position} for epoch, position in enumerate(positions)})
        for number, positions in enumerate(places)
    ]
    found = newest_agreeing(streams)
    assert (found is not None) == bool(set.intersection(*map(set, places)))
    if found is not None:
        assert len({stream.positions[found[stream.query]]["x"] for stream in streams}) == 1


def test_queries_are_connected_through_other_queries() -> None:
    """Two queries that share no source are connected if a third shares one with each."""
    first, second, third = (
        QueryStreams(name, {0: dict.fromkeys(streams, 1)}) for name, streams in (("a", "x"), ("b", "y"), ("c", "xy"))
    )
    assert connected([first, third, second])
    assert not connected([first, second])


def test_a_cut_by_files(tmp_path: Path) -> None:
    """The default is the newest epochs that reflect the same files; the cut says so and has their snapshots."""
    store = stored(tmp_path, one=files(1, 2, 3, 4, 5), three=files(3, 6))
    cut = ss.cut(store, ["one", "three"])
    assert (cut.by, cut.exact, cut.epochs) == ("offsets", True, {"one": 2, "three": 0})
    assert cut["one"].table().lookup(key="a") == {"key": "a", "value": 2}
    assert ([*cut], len(cut), "three" in cut, "four" in cut) == (["one", "three"], 2, True, False)
    assert ss.cut(tmp_path, ["three", "one"], at="live").epochs == {"three": 0, "one": 2}
    with pytest.raises(UnknownQueryError, match="in the cut"):
        _ = cut["four"]


def test_a_cut_at_an_epoch_or_by_a_time(tmp_path: Path) -> None:
    """At an epoch of the first or the named query, or the newest epochs committed by a time."""
    store = stored(tmp_path, one=files(1, 2, 3, 4), two=files(2, 4))
    both = ["one", "two"]
    assert ss.cut(store, both).epochs == {"one": 3, "two": 1}
    assert ss.cut(store, both, at=1).epochs == {"one": 1, "two": 0}
    assert ss.cut(store, both, at="live - 2").epochs == {"one": 1, "two": 0}
    assert ss.cut(store, both, at={"two": 0}).epochs == {"one": 1, "two": 0}
    assert ss.cut(store, both, at=START + timedelta(minutes=2)).epochs == {"one": 1, "two": 0}
    assert ss.cut(store, both, at={"one": 3, "two": 1}).epochs == {"one": 3, "two": 1}


def test_a_missing_cut_error_names_the_nearest_cuts(tmp_path: Path) -> None:
    """It names those before and after, and is a LookupError."""
    store = stored(tmp_path, one=files(1, 2, 3, 4), two=files(2, 4))
    with pytest.raises(UnknownCutError) as error:
        ss.cut(store, ["one", "two"], at=2)
    assert str(error.value) == (
        "There is no cut of one, two with epoch 2 of one.\nThe nearest: one 1, two 0; or one 3, two 1."
    )
    assert isinstance(error.value, LookupError)
    with pytest.raises(UnknownCutError, match="nearest: one 1, two 0"):
        ss.cut(store, ["one", "two"], at=START)
    with pytest.raises(UnknownEpochError, match="nearest captured: 3"):
        ss.cut(store, ["one", "two"], at=9)


def test_queries_that_began_elsewhere_have_no_cut_by_offsets(tmp_path: Path) -> None:
    """The error and the note of another cut name the topic, its partitions, and where each query began."""
    read = [{"flights": {"0": 10, "1": 20}}, {"flights": {"0": 30, "1": 20}}]
    later = {"flights": {"0": 5, "1": 20}}
    store = stored(tmp_path, one=kafka(*read), two=kafka(*read, start=later))
    why = "one and two both read flights, but began at other offsets: partition 0 at 0 and 5, partition 1 at 0 and 20."
    with pytest.raises(UnknownCutError, match=re.escape(why)):
        ss.cut(store, ["one", "two"], by="offsets")
    assert ss.cut(store, ["one", "two"]).note.endswith(why)


def test_a_missing_cut_error_names_the_partition(tmp_path: Path) -> None:
    """In which the queries end at other offsets."""
    one = kafka({"flights": {"0": 10, "10": 4}}, {"flights": {"0": 30, "10": 8}})
    two = kafka({"flights": {"0": 10, "10": 5}}, {"flights": {"0": 30, "10": 9}})
    store = stored(tmp_path, one=one, two=two)
    why = "No such epochs of one, two end at the same offset of flights, partition 10."
    with pytest.raises(UnknownCutError, match=why):
        ss.cut(store, ["one", "two"], by="offsets")
    with pytest.raises(UnknownCutError, match="flights, partition 0"):
        ss.cut(store, ["one", "two"], by="offsets", at={"one": 0, "two": 1})


def test_queries_that_never_agree_have_no_cut_by_offsets(tmp_path: Path) -> None:
    """Queries that read a folder at different paces get an approximate cut only on request."""
    store = stored(tmp_path, even=files(2, 4, 6), odd=files(1, 3, 5))
    with pytest.raises(UnknownCutError, match="none at other epochs either"):
        ss.cut(store, ["even", "odd"])
    near = ss.cut(store, ["even", "odd"], by="commit_time")
    assert (near.exact, near.epochs) == (False, {"even": 2, "odd": 2})


def test_of_equal_epochs_a_cut_has_the_newest(tmp_path: Path) -> None:
    """An epoch without input only advances the watermark, and reflects the same prefix."""
    store = stored(tmp_path, one=files(1, 2, 2), two=files(2, 2, 2, 3))
    assert ss.cut(store, ["one", "two"]).epochs == {"one": 2, "two": 2}


def test_all_shared_sources_have_to_match(tmp_path: Path) -> None:
    """Of a query with two sources only the shared one counts, and the note names the remaining source."""
    store = stored(
        tmp_path,
        delays=files(1, 2, 3),
        weather=files(1, 2, under="file:///weather"),
        both=joined(files(1, 1, 2, 3), files(1, 2, 2, 3, under="file:///weather")),
    )
    cut = ss.cut(store, ["delays", "both"])
    assert (cut.epochs, cut.exact) == ({"delays": 2, "both": 3}, True)
    assert cut.note.endswith("Sources that only one query reads are not considered: both has some.")
    assert ss.cut(store, ["delays", "both"], at=1).epochs == {"delays": 1, "both": 2}


def test_kafka_is_compared_by_topic_and_start(tmp_path: Path) -> None:
    """Topics are compared one by one; the same end from another start is a different prefix."""
    store = stored(
        tmp_path,
        flights=kafka({"flights": {"0": 5, "1": 3}}, {"flights": {"0": 9, "1": 3}}),
        all=kafka(
            {"flights": {"0": 5, "1": 3}, "weather": {"0": 1}}, {"flights": {"0": 5, "1": 3}, "weather": {"0": 2}}
        ),
        late=kafka({"flights": {"0": 9, "1": 3}}, start={"flights": {"0": 7, "1": 0}}),
    )
    cut = ss.cut(store, ["flights", "all"])
    assert (cut.by, cut.epochs) == ("offsets", {"flights": 0, "all": 1})
    assert ss.cut(store, ["flights", "late"]).by == "commit_time"


T4, U4 = ({"reservoirId": table, "reservoirVersion": 4, "index": -1} for table in "tu")
RATE = {"offset": 10, "timestamp": 1000}


@pytest.mark.parametrize(
    ("here", "there", "by"),
    [
        (T4, T4, "offsets"),
        (T4, U4, "commit_time"),
        (RATE, RATE, "offsets"),
        (7, 7, "commit_time"),
        (None, None, "commit_time"),
    ],
)
def test_sources_that_compare_between_queries(tmp_path: Path, here: Any, there: Any, by: str) -> None:
    """Delta versions of one table and the micro-batch rate source compare; a source's own counter does not."""
    facts = [[{"offsets": json.dumps([offset])}] for offset in (here, there)]
    assert ss.cut(stored(tmp_path, a=facts[0], b=facts[1]), ["a", "b"]).by == by


def test_an_incomparable_source_makes_a_cut_inexact(tmp_path: Path) -> None:
    """The shared sources agree if that is requested, and the note says what is unknown."""
    numbers = [{"offsets": "[3]"}, {"offsets": "[4]"}]
    for fact in numbers:
        fact["sources"] = '[{"kind":"offset"}]'
    store = stored(tmp_path, a=files(1, 2, 3), b=joined(files(1, 2), numbers))
    assert ss.cut(store, ["a", "b"]).by == "commit_time"
    cut = ss.cut(store, ["a", "b"], by="offsets")
    assert (cut.epochs, cut.exact) == ({"a": 1, "b": 1}, False)
    assert cut.note.endswith("whose offsets cannot be compared: b has some.")


def test_hive_partitions_are_one_folder(tmp_path: Path) -> None:
    """A query that is still in the first day reads the same folder as one that is further."""
    first_day, both_days = files(1, 2, under="file:///in/day=1"), files(2, 3)
    assert ss.cut(stored(tmp_path, one=first_day, two=both_days), ["one", "two"]).epochs == {"one": 1, "two": 0}


def test_a_source_without_offsets_is_at_its_beginning(tmp_path: Path) -> None:
    """A query that has not read from a source yet can be part of a cut."""
    store = stored(tmp_path, a=joined(files(None, 1), files(1, 2, under="file:///b")), b=files(1, 2, under="file:///b"))
    assert ss.cut(store, ["a", "b"], at={"b": 0}).epochs == {"a": 0, "b": 0}


def minutes(number: float) -> datetime:
    """The time this many minutes after the first commit."""
    return START + timedelta(minutes=number)


def watermarks(*numbers: int | None) -> list[dict[str, Any]]:
    """Epochs with these watermarks and offsets that do not compare."""
    return [{"watermark": None if watermark is None else minutes(watermark), "offsets": "[1]"} for watermark in numbers]


def test_a_cut_by_event_time(tmp_path: Path) -> None:
    """If sources do not compare and all queries have watermarks: the newest epochs up to the lowest watermark."""
    store = stored(tmp_path, a=watermarks(None, 10, 20, 30), b=watermarks(None, 12, 21))
    cut = ss.cut(store, ["a", "b"])
    assert (cut.by, cut.exact, cut.epochs) == ("event_time", False, {"a": 2, "b": 2})
    assert ss.cut(store, ["a", "b"], at=1).epochs == {"a": 1, "b": 0}
    assert ss.cut(store, ["a", "b"], at={"b": 1}).epochs == {"a": 1, "b": 1}
    assert ss.cut(store, ["a", "b"], at=minutes(20)).epochs == {"a": 2, "b": 1}
    assert "2026-01-01T00:21:00+00:00" in cut.note
    with pytest.raises(UnknownCutError, match="no watermark with epoch 0 of a"):
        ss.cut(store, ["a", "b"], at=0)


def test_a_cut_by_event_time_before_the_first(tmp_path: Path) -> None:
    """The error names the first time at which there is one."""
    store = stored(tmp_path, a=watermarks(5, 10), b=watermarks(7, 8))
    with pytest.raises(UnknownCutError, match="nearest: a 0, b 0"):
        ss.cut(store, ["a", "b"], at=minutes(6), by="event_time")


def test_a_cut_by_commit_time(tmp_path: Path) -> None:
    """The epochs in force at one time; after an epoch that was not captured, they are unknown."""
    write(tmp_path, [{"a": 1}, None, {"a": 2}], query="a")
    write(tmp_path, [{"a": 1}, {"a": 2}, {"a": 3}, {"a": 4}], query="b")
    store = ss.open_store(tmp_path)
    assert ss.cut(store, ["a", "b"], by="commit_time").epochs == {"a": 2, "b": 2}
    assert ss.cut(store, ["b", "a"], at=3, by="commit_time").epochs == {"b": 3, "a": 2}
    with pytest.raises(UnknownCutError, match="nearest: a 2, b 2") as error:
        ss.cut(store, ["a", "b"], at=minutes(1), by="commit_time")
    assert " at 2026-01-01T00:01:00+00:00." in str(error.value)


def test_sql_over_a_cut(tmp_path: Path) -> None:
    """Every relation is pinned to its query's epoch; other queries and other epochs are not available."""
    store = stored(tmp_path, one=files(1, 2, 3), two=files(2), other=files(1))
    with ss.cut(store, ["one", "two"]) as cut:
        rows = (
            cut.sql("SELECT one.value AS v, t.value AS w FROM one JOIN two.op0 AS t USING (key)").to_arrow().to_pylist()
        )
        assert rows == [{"v": 1, "w": 0}]
        write(tmp_path, [{"a": 9}] * 4, query="one", facts=files(1, 2, 3, 4))
        assert cut.sql("SELECT value FROM one").to_arrow().to_pylist() == [{"value": 1}]
        assert store.sql("SELECT value FROM other").to_arrow().num_rows == 1
        with pytest.raises(UnknownNameError, match="'other'"):
            cut.sql("SELECT * FROM other")
        for travel in ("one VERSION AS OF 0", "one TIMESTAMP AS OF '2026-01-01T00:00:00+00:00'"):
            with pytest.raises(InvalidSQLError, match=r"only at epoch 1"):
                cut.sql(f"SELECT * FROM {travel}")
        with pytest.raises(InvalidArgumentError, match="epochs of a cut are fixed"):
            cut.sql("SELECT * FROM one", at=1)


def test_a_cut_is_shown_as_text_and_as_a_table(tmp_path: Path) -> None:
    """It shows what the cut is by, and each query's epoch."""
    cut = ss.cut(stored(tmp_path, one=files(1, 2), two=files(2)), ["one", "two"])
    assert repr(cut) == "<Cut by offsets: one 1, two 0>"
    assert cut.to_pandas()[["query", "epoch", "rows"]].to_dict("list") == {
        "query": ["one", "two"],
        "epoch": [1, 0],
        "rows": [1, 1],
    }
    assert "<td>two</td>" in cut._repr_html_()
    assert "the same prefix" in cut._repr_html_()


@pytest.mark.parametrize(
    ("queries", "options", "message"),
    [
        ("one", {}, "expected a list"),
        ([], {}, "one or more"),
        (["one", "one"], {}, "each named once"),
        (["one", "none"], {}, "There is no query 'none'"),
        (["one", "two"], {"at": "then"}, "Invalid epoch 'then'"),
        (["one", "two"], {"at": {"three": 1}}, "is not one of the cut's queries"),
        (["one", "two"], {"at": True}, "Invalid at=True"),
        (["one", "two"], {"by": "luck"}, "expected one of offsets, event_time, commit_time"),
        (["one", "two"], {"at": datetime(2026, 1, 1)}, "no time zone"),  # noqa: DTZ001
    ],
)
def test_invalid_arguments_of_a_cut_are_rejected(
    tmp_path: Path, queries: Any, options: dict[str, Any], message: str
) -> None:
    """The error says what would be valid."""
    store = stored(tmp_path, one=files(1), two=files(1))
    with pytest.raises((InvalidArgumentError, UnknownQueryError), match=message):
        ss.cut(store, queries, **options)


@pytest.mark.slow
def test_two_queries_over_one_folder(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    """With Spark: queries that read two and three files per batch agree at every sixth file."""
    for epoch in range(9):
        source.add(letters(epoch))
    for size in (2, 3):
        reader = spark.readStream.schema("k string, v long").option("maxFilesPerTrigger", size)
        run(reader.parquet(str(source.folder)).groupBy("k").sum("v"), tmp_path / f"by{size}")
        ss.Checkpoint(tmp_path / f"by{size}").capture(tmp_path / "store", spark=spark)
    cut = ss.cut(tmp_path / "store", ["by2", "by3"], at=2)
    assert (cut.by, cut.exact, cut.epochs) == ("offsets", True, {"by2": 2, "by3": 1})
    assert cut["by2"].table().to_arrow().to_pylist() == cut["by3"].table().to_arrow().to_pylist()
    assert cut.sql("SELECT count(*) AS n FROM by2 JOIN by3 USING (k, sum)").to_arrow()["n"][0].as_py() == 6 + 7
    with pytest.raises(UnknownCutError, match="nearest: by2 2, by3 1"):
        ss.cut(tmp_path / "store", ["by2", "by3"], at=3)
