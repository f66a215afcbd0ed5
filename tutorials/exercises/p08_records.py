"""The exercises of the notebook 08, "Which record did this?": offsets, the epochs that read them, and compaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import streamstate as ss
from streamstate.tutorials import flights
from streamstate.tutorials.exercises.answers import Table
from streamstate.tutorials.exercises.construct import Construct, Exercise, StateExercise
from streamstate.tutorials.exercises.own_query import DATA, OWN, run_to_end
from streamstate.tutorials.exercises.questions import Choice, Keys, Number, Question, WrongAnswer
from streamstate.tutorials.staging import clear

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy
    from pyspark.sql import DataFrame

    from streamstate.state_inspect import History
    from streamstate.tutorials.exercises.attempts import Function
    from streamstate.tutorials.exercises.sampling import Case

Ends: TypeAlias = Sequence[Mapping[str, int]]
"""For each epoch the offset, in each partition, at which the next epoch begins."""

KEYS = ("AA", "UA", "AA", "HA", "UA", "AA", "B6", "HA", "B6", "UA")
"""The keys of a partition's records, from offset 0 on."""
EPOCHS = ((0, 4), (4, 7), (7, 10))
"""From which offset to which the epochs read that partition, without the last one."""


def epoch_of(ends: Ends, partition: str, offset: int) -> int | None:
    """Return the epoch that read a record; None if no epoch has."""
    return next((epoch for epoch, end in enumerate(ends) if offset < end.get(partition, 0)), None)


def compacted(keys: Sequence[str]) -> set[int]:
    """Return the offsets of the records that stay: the newest one of each key."""
    return set({key: offset for offset, key in enumerate(keys)}.values())


def _compaction() -> Table:
    left = compacted(KEYS)
    rows = []
    for epoch, (first, end) in enumerate(EPOCHS):
        found = [f"{offset} {KEYS[offset]}" for offset in range(first, end) if offset in left]
        rows.append([epoch, f"{first} to {end - 1}", end - first, ", ".join(found) or "none"])
    return Table(["epoch", "read the offsets", "records", "still there"], rows)


def _cases() -> SearchStrategy[Case]:
    """Epochs of a topic with two partitions, to which a third one is added before one of the epochs."""
    from hypothesis import strategies as st

    epochs = st.lists(st.tuples(*[st.integers(0, 4)] * 3), min_size=1, max_size=5)
    return st.tuples(epochs, st.integers(0, 3), st.sampled_from("012"), st.integers(0, 9)).map(
        lambda drawn: _case(*drawn)
    )


def _case(read: Sequence[tuple[int, ...]], added: int, partition: str, offset: int) -> Case:
    """Return offsets and a record.

    Args:
        read: how many offsets each epoch moves on in each partition.
        added: the first epoch that has partition 2.
        partition: the record's partition.
        offset: its offset.
    """
    ends: list[dict[str, int]] = []
    end = {"0": 1, "1": 1}
    for epoch, counts in enumerate(read):
        names = "012" if epoch >= added else "01"
        end = {name: end.get(name, 0) + counts[int(name)] for name in names}
        ends.append(end)
    return ends, partition, offset


def _only_known_before(ends: Ends, partition: str, offset: int) -> int | None:
    """Let an epoch begin where the one before has ended, or else where it ends itself."""
    for epoch, end in enumerate(ends):
        if partition in end:
            first = ends[epoch - 1].get(partition, end[partition]) if epoch else 0
            if first <= offset < end[partition]:
                return epoch
    return None


def captured(function: Function) -> History | None:
    """Run a learner's query over all records of its topics."""
    frame = function()
    if frame is None or frame is ...:
        return None
    folder = Path("streamstate-data/own-records")
    clear(ss.session(), OWN, folder)
    return run_to_end(frame, OWN, folder / "store", partitions=2)


def _has_records(history: History) -> str:
    """Say why the newest change of a key cannot be traced to some records; empty if it can."""
    epochs = history.epochs().query("input_rows > 0")
    epoch, records = (int(epochs[column].iloc[-1]) for column in ("epoch", "input_rows"))
    table = history.tables()[0]
    changed = history.diff(epoch - 1, epoch, table)
    [row] = changed.page_arrow(limit=1).to_pylist()
    key = {column: row[column] for column in changed.key_columns}
    named = ", ".join(f"{column} = {value}" for column, value in key.items()) or "all rows"
    why = history.why(epoch, table=table, key=key)
    if why.may_differ:
        return f"Nobody can say which records are behind {named} at epoch {epoch}: {why.may_differ}."
    if why.count() == records:
        return f"Behind {named} at epoch {epoch} are all {records:,} records of it. By what could they be divided?"
    return "" if why.count() else f"No record of epoch {epoch} falls on {named}, which changed."


def _departures() -> DataFrame:
    """Departures from files, for whoever has no broker."""
    data = flights.prepare(DATA, days_per_file=2, last=date(2013, 2, 28))
    return flights.flights(ss.session(), data, until=3)


EXERCISES: Sequence[Question | Exercise] = (
    Question(
        id="divided",
        task="How is an epoch divided among partitions?",
        kind=Choice(
            {
                "equal": "as many records from each partition",
                "share": "from each partition in proportion to what it has left",
                "first": "partition 0 to its end, then partition 1",
            }
        ),
        truth=None,
        because="The limit is shared out in proportion to what is unread, so that all partitions get to their end at "
        "about the same time.",
        wrong=[
            WrongAnswer("equal", "Then the partition with fewer records would be read to its end first."),
            WrongAnswer("first", "Then the records of partition 1 would wait for all those of partition 0."),
        ],
        hints=["Which way do all partitions get to their end at the same time?"],
    ),
    Question(
        id="fell",
        task="How many records are behind the change?",
        kind=Number(),
        truth=None,
        because="A record is behind the change if it falls on the key and the epoch read it. `departures` went up by "
        "as many.",
        wrong=[
            WrongAnswer(1, "One record made the maximum. But the average moved with every record of the key."),
            WrongAnswer(
                lambda answer: answer > 500, "The epoch read that many. How many of them are departures of HA from JFK?"
            ),
            WrongAnswer(9, "That is how many departures the key has. How many did it have before this epoch?"),
        ],
        hints=["The history of the key counts its departures. By how much did the count change?"],
    ),
    Construct(
        id="epoch_of",
        task="Write `epoch_of(ends, partition, offset)`",
        solution=epoch_of,
        arguments=["ends", "partition", "offset"],
        cases=_cases,
        examples=[
            ([{"0": 3, "1": 2}, {"0": 5, "1": 2}], "0", 3),
            ([{"0": 3, "1": 2}, {"0": 5, "1": 2, "2": 4}], "2", 0),
            ([{"0": 3, "1": 2}, {"0": 5, "1": 6}], "1", 9),
        ],
        wrong=[
            WrongAnswer(
                lambda ends, partition, offset: next(
                    (epoch for epoch, end in enumerate(ends) if offset <= end.get(partition, -1)), None
                ),
                "`ends` has the offset at which the next epoch begins. Who reads the record at that offset?",
            ),
            WrongAnswer(
                _only_known_before,
                "An epoch that is the first to have a partition has read it, too: from offset 0.",
            ),
            WrongAnswer(
                lambda ends, partition, offset: next(
                    (epoch for epoch, end in enumerate(ends) if offset < end.get(partition, 0)), len(ends) - 1
                ),
                "A record that the newest epoch has not reached was read by none.",
            ),
            WrongAnswer(
                lambda ends, partition, offset: max(
                    (epoch for epoch, end in enumerate(ends) if end.get(partition, 0) <= offset), default=None
                ),
                "This is the newest epoch that does not have the record, and the next one read it.",
            ),
            WrongAnswer(
                lambda ends, partition, offset: next(
                    (epoch for epoch, end in enumerate(ends) if offset < sum(end.values())), None
                ),
                "Each partition counts its own offsets. What the others have read does not matter.",
            ),
        ],
        hints=[
            "An epoch reads a partition from the end of the epoch before up to its own end, and not the record there.",
            "Ends only grow. What distinguishes the epochs that have the record from those before?",
            "Take the first epoch whose end lies beyond the offset. `end.get(partition, 0)` helps with new partitions.",
        ],
    ),
    Question(
        id="compacted",
        task="Which records does compaction leave?",
        kind=Keys([str(offset) for offset in range(len(KEYS))]),
        truth=lambda: {str(offset) for offset in compacted(KEYS)},
        table=_compaction,
        because="The newest record of each key stays, at its old offset; an offset never names another record. So "
        "nothing of epoch 0 can be read again, one record of three of epoch 1, and all of epoch 2.",
        wrong=[
            WrongAnswer({"0", "1", "2", "3"}, "Four records stay, but they do not move up. Offsets are never reused."),
            WrongAnswer(
                {"0", "1", "3", "6"},
                "These are the oldest records of each key. A compacted topic is a table: which value counts?",
            ),
            WrongAnswer(
                {"7", "8", "9"}, "AA has not come again since epoch 1. Is its record old, or the newest of its key?"
            ),
            WrongAnswer(
                {str(offset) for offset in range(len(KEYS))}, "Then nothing would be compacted: AA came three times."
            ),
        ],
        hints=["Go through the keys from the right.", "There are four keys, so four records stay."],
    ),
    StateExercise(
        id="own",
        task="A query of your own, down to its records",
        solution=lambda: _departures().groupBy("carrier").count(),
        capture=captured,
        grades=[_has_records],
        wrong=[
            WrongAnswer(lambda: _departures().groupBy().count(), "records of it. By what could they be divided?"),
            WrongAnswer(
                lambda: _departures().selectExpr("floor(rand() * 3) AS key").groupBy("key").count(), "Nobody can say"
            ),
            WrongAnswer(lambda: _departures().select("carrier"), "keeps no state"),
        ],
        hints=[
            "`departure` is the stream of the notebook, with a column for each field of a record.",
            "Group by something that is in the record.",
        ],
    ),
)
