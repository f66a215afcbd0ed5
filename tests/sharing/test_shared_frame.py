"""What others share as a static side of a join: each epoch of a query reads one epoch of theirs, again and again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import synthetic
from conftest import Source
from oracle import spark_rows
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import streamstate as ss
from streamstate.errors import (
    InvalidArgumentError,
    InvalidNameError,
    QueryError,
    ShareError,
    UnknownEpochError,
    UnknownQueryError,
    UnknownTableError,
    VariableConflictError,
)
from streamstate.reports import SharedFrame, SharedStore
from streamstate.sharing import ShareServer, serve
from streamstate.sharing.replica import COPY
from streamstate.sharing.shared_frame import rows_bound
from streamstate.state_inspect.store import Store

KEYS = ["a", "b", "c", "d"]
THEIRS: list[dict[str, int] | None] = [{key: 10 * epoch + at for at, key in enumerate(KEYS)} for epoch in range(8)]
SCHEMA = pa.schema([("key", pa.string()), ("value", pa.int64())])


@dataclass
class Sides:
    """Two organisations: one shares a state, of which the other has a copy and a variable with the epoch to read."""

    folder: Path
    server: ShareServer
    copy: SharedStore
    frame: SharedFrame

    @classmethod
    def of(cls, folder: Path) -> Sides:
        """They begin with epochs 0 and 1."""
        synthetic.write(folder / "theirs", THEIRS[:2])
        store = ss.open_store(folder / "theirs")
        server = serve(store, port=0)
        copy = ss.open_share(store["q"].publish("us").profile(server.url), cache=folder / "copy")
        return cls(folder, server, copy, ss.shared_frame(folder / "ours", "theirs", copy, query="q"))

    def advance(self, epochs: int) -> None:
        """Let the state that is shared have this many epochs."""
        synthetic.write(self.folder / "theirs", THEIRS[:epochs])


@pytest.fixture
def sides(tmp_path: Path) -> Iterator[Sides]:
    """Both sides."""
    made = Sides.of(tmp_path)
    with made.server:
        yield made


def read(frame: SharedFrame, copy: Store) -> dict[str, int]:
    """What a task outside of epochs would read."""
    rows = rows_bound(frame, copy["q"], "op0", SCHEMA)
    return dict(zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True))


def test_the_epoch_is_chosen_by_refreshing(sides: Sides) -> None:
    """Not when it arrives in the copy, nor when the frame is declared again; earlier ones can be chosen by hand."""
    frame, copy = sides.frame, sides.copy
    assert frame.get() == 1
    sides.advance(4)
    copy.refresh()
    again = ss.shared_frame(sides.folder / "ours", "theirs", copy, query="q")
    assert (frame.get(), again.get()) == (1, 1)
    assert read(frame, copy) == THEIRS[1]
    assert frame.refresh() == 3
    assert read(again, copy) == THEIRS[3]
    frame.set(0)
    assert read(frame, copy) == THEIRS[0]
    assert frame.refresh() == 3
    assert frame.history()["value"].tolist()[1:] == [1, 3, 0, 3]


def test_it_is_chosen_in_the_background(sides: Sides) -> None:
    """Copied too; the promise of the contract is watched as that of a copy."""
    with sides.frame.follow(0.05) as following:
        sides.advance(5)
        deadline = time.monotonic() + 20
        while sides.frame.get() < 4:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    assert following.error is None
    [fresh] = sides.frame.freshness()
    assert (fresh.name, fresh.epoch) == ("q", 4)
    with pytest.raises(InvalidArgumentError, match="every=0"):
        sides.frame.follow(0)


def test_a_later_choice_of_another_process_stays(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    """If it is made between looking and setting, too."""
    sides.advance(4)
    frame, other = sides.frame, ss.shared(sides.folder / "ours", "theirs")
    own = frame.set

    def overtaken(*value: Any) -> int:
        other.set(3)
        return own(*value)

    monkeypatch.setattr(frame, "set", overtaken)
    assert frame.refresh() == 3
    monkeypatch.undo()
    other.set(7)
    assert frame.refresh() == 7


def test_without_the_server(sides: Sides) -> None:
    """The newest epoch of the copy is chosen, which another process may have copied."""
    sides.advance(3)
    sides.copy.refresh()
    sides.server.close()
    with pytest.raises(ShareError, match="cannot be reached"):
        sides.frame.refresh()
    assert sides.frame.get() == 2
    with sides.frame.follow(0.05) as following:
        deadline = time.monotonic() + 20
        while following.error is None:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    assert "cannot be reached" in following.error


def test_an_epoch_that_was_dropped(sides: Sides) -> None:
    """The error says what is bound to it, where it is missing, and which epochs are nearest."""
    sides.advance(6)
    sides.frame.refresh()
    sides.copy["q"].retain(last=2)
    sides.frame.set(3)
    with pytest.raises(ShareError, match=r"(?s)theirs is bound to epoch 3 of q, which .*/copy does not have.*: 4 \(of"):
        read(sides.frame, sides.copy)


def test_a_store_of_ones_own(tmp_path: Path) -> None:
    """Its newest epoch is that which capture has written; a column that came later is null before."""
    synthetic.write(tmp_path / "store", THEIRS[:2])
    store = ss.open_store(tmp_path / "store")
    frame = ss.shared_frame(tmp_path / "store", "q", store)
    assert frame.freshness() == []
    synthetic.write(tmp_path / "store", THEIRS[:3])
    assert frame.refresh() == 2
    rows = rows_bound(frame, store["q"], "op0", SCHEMA.append(pa.field("later", pa.float64())))
    assert rows["value"].to_pylist() == [20, 21, 22, 23]
    assert rows["later"].null_count == 4


def test_what_is_refused(sides: Sides) -> None:
    """Nothing is declared for it."""
    ours, copy = sides.folder / "ours", sides.copy
    given: list[tuple[type[Exception], str, tuple[Any, ...], dict[str, Any]]] = [
        (InvalidArgumentError, "ss.open_share", (ours, "x", str(sides.folder / "copy")), {}),
        (UnknownQueryError, "q", (ours, "x", copy), {}),
        (UnknownTableError, "op0", (ours, "x", copy), {"query": "q", "table": "op1"}),
        (InvalidNameError, "x y", (ours, "x y", copy), {"query": "q"}),
    ]
    for error, said, arguments, options in given:
        with pytest.raises(error, match=said):
            ss.shared_frame(*arguments, **options)
    assert ss.open_store(ours).variables() == ["theirs"]
    ss.shared(ours, "limit", "double", init=1.0)
    with pytest.raises(VariableConflictError, match="declared otherwise"):
        ss.shared_frame(ours, "limit", copy, query="q")
    synthetic.write(sides.folder / "empty", [])
    with pytest.raises(UnknownEpochError, match="No epoch of q is captured yet"):
        ss.shared_frame(ours, "x", ss.open_store(sides.folder / "empty"), query="q")


@dataclass
class Joined:
    """A query that joins a stream with what is shared, an epoch for each file of input, and what each should see."""

    spark: SparkSession
    sides: Sides
    source: Source
    expected: list[int] = field(default_factory=list)

    @property
    def checkpoint(self) -> Path:
        """The query's checkpoint."""
        return self.sides.folder / "checkpoint"

    def build(self) -> DataFrame:
        """The query's code: the value that each key has in what is shared, by the number of the input."""
        rows = self.source.stream().join(self.sides.frame.frame(), "key")
        return rows.groupBy("e", "key").agg(F.min("value").alias("least"), F.max("value").alias("most"))

    def run(self, epoch: int | None = None) -> None:
        """Run the query over new input, and expect that it sees an epoch."""
        if epoch is not None:
            self.source.add({"e": [len(self.expected)] * len(KEYS), "key": KEYS})
            self.expected.append(epoch)
        running = ss.start(
            self.build(),
            "joined",
            self.sides.folder / "ours",
            checkpoint=self.checkpoint,
            trigger="available-now",
            shared=(self.sides.frame,),
        )
        running.wait(timeout=300)
        running.stop()

    def seen(self, checkpoint: Path | str, epoch: int) -> dict[int, dict[str, tuple[int, int]]]:
        """By input, the least and the largest value of each key, according to the state at an epoch."""
        found: dict[int, dict[str, tuple[int, int]]] = {}
        reader = self.spark.read.format("statestore").option("batchId", epoch).load(str(checkpoint))
        for row in reader.select("key", "value").collect():
            found.setdefault(row.key[0], {})[row.key[1]] = (row.value[0], row.value[1])
        return found

    @property
    def captured(self) -> list[int]:
        """The captured epochs of the query."""
        return ss.open_store(self.sides.folder / "ours")["joined"].captured()

    def recorded(self) -> dict[int, int]:
        """The epoch of theirs that each epoch of the query is recorded with."""
        versions = self.sides.frame.history().set_index("version")["value"]
        bindings = ss.open_store(self.sides.folder / "ours")["joined"].bindings()
        return {int(epoch): int(versions[version]) for epoch, version in bindings[["epoch", "version"]].to_numpy()}

    def whole(self) -> dict[int, dict[str, tuple[int, int]]]:
        """What the query should have seen."""
        states = [THEIRS[epoch] or {} for epoch in self.expected]
        return {at: {key: (value, value) for key, value in state.items()} for at, state in enumerate(states)}


@pytest.fixture(scope="module")
def joined(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Joined]:
    """The query has read epochs 1, 1, 4, 2 and 5 of theirs, which has gone on to 7."""
    folder = tmp_path_factory.mktemp("joined")
    sides = Sides.of(folder)
    with sides.server:
        made = Joined(spark, sides, Source(spark, folder / "input", "e long, key string"))
        made.run(1)
        sides.advance(5)
        sides.copy.refresh()
        made.run(1)
        sides.frame.refresh()
        made.run(4)
        sides.frame.set(2)
        made.run(2)
        sides.advance(6)
        sides.frame.refresh()
        made.run(5)
        sides.advance(8)
        sides.frame.refresh()
        yield made


@pytest.mark.slow
def test_each_epoch_sees_one_epoch_of_theirs(joined: Joined) -> None:
    """The one that was chosen when it began, which the store records."""
    last = len(joined.expected) - 1
    assert joined.seen(joined.checkpoint, last) == joined.whole()
    recorded = joined.recorded()
    assert [recorded[epoch] for epoch in range(last + 1)] == joined.expected


@pytest.mark.slow
def test_a_step_sees_what_the_run_saw(joined: Joined, tmp_path: Path) -> None:
    """Epoch by epoch, though theirs has gone on; with another value it sees that."""
    first, *_, last = joined.captured
    fork = ss.Checkpoint(joined.checkpoint).fork(tmp_path / "fork", at=first)
    fork.step(joined.build, epochs=last - first)
    for epoch in joined.captured:
        assert spark_rows(joined.spark, fork.path, "op0", epoch) == spark_rows(
            joined.spark, joined.checkpoint, "op0", epoch
        )
    other = ss.Checkpoint(joined.checkpoint).fork(tmp_path / "other", at=first)
    other.step(joined.build, epochs=1, shared={"theirs": 0})
    assert joined.seen(other.path, first + 1)[1] == {key: (value, value) for key, value in (THEIRS[0] or {}).items()}


@pytest.mark.slow
def test_an_epoch_that_runs_again_sees_the_same(joined: Joined) -> None:
    """After a restart, though a later one was chosen meanwhile: the next epoch has that."""
    last = joined.captured[-1]
    before = spark_rows(joined.spark, joined.checkpoint, "op0", last)
    (joined.checkpoint / "commits" / str(last)).unlink()
    (joined.checkpoint / "commits" / f".{last}.crc").unlink(missing_ok=True)
    joined.run()
    assert spark_rows(joined.spark, joined.checkpoint, "op0", last) == before
    assert joined.recorded()[last + 1] == 7


@pytest.mark.slow
def test_the_error_of_an_epoch_that_was_dropped(joined: Joined, tmp_path: Path) -> None:
    """A step over an epoch that read it fails, and says so."""
    first = joined.captured[0]
    fork = ss.Checkpoint(joined.checkpoint).fork(tmp_path / "fork", at=first)
    with pytest.raises(QueryError, match=r"theirs is bound to epoch 100 of q, which .* does not have"):
        fork.step(joined.build, epochs=1, shared={"theirs": 100})


@pytest.mark.exhaustive
def test_a_replay_and_an_audit_are_the_same(joined: Joined, tmp_path: Path) -> None:
    """Key by key; with another epoch, the first difference is where it was read."""
    _, second, *_, last = joined.captured
    checkpoint = ss.Checkpoint(joined.checkpoint)
    assert checkpoint.replay(joined.build, to=tmp_path / "same", epochs=(second, last)).same
    other = checkpoint.replay(
        joined.build, to=tmp_path / "other", epochs=(second, last), shared={"theirs": 0}
    ).comparison.first
    assert other is not None
    assert other.epoch == second
    audit = checkpoint.audit(joined.build, epochs=(second, second + 1), replays=1)
    assert audit.clean, audit


@pytest.mark.slow
@pytest.mark.parametrize("hint", ["broadcast", "merge"])
def test_while_the_share_advances(spark: SparkSession, sides: Sides, hint: str) -> None:
    """A running query sees in each of its epochs one epoch of theirs, never parts of two: the recorded one."""
    source = Source(spark, sides.folder / "input", "e long, key string")
    rows = source.stream().join(sides.frame.frame().hint(hint), "key")
    frame = rows.groupBy("e").agg(F.min(F.expr("value DIV 10")).alias("least"), F.max(F.expr("value DIV 10")))
    running = ss.start(frame, "joined", sides.folder / "ours", shared=(sides.frame,))
    joined = Joined(spark, sides, source)
    assert running.query is not None
    with sides.frame.follow(0.05):
        for number in range(6):
            sides.advance(3 + number)
            source.add({"e": [number] * len(KEYS), "key": KEYS})
            running.query.processAllAvailable()
        deadline = time.monotonic() + 60
        while sides.frame.get() < 7:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        source.add({"e": [6] * len(KEYS), "key": KEYS})
        running.query.processAllAvailable()
    running.stop()
    recorded, known = joined.recorded(), dict[int, tuple[int, int]]()
    history = ss.open_store(sides.folder / "ours")["joined"]
    for epoch in history.captured():
        table = history.at(epoch).table().to_arrow()
        e, least, most = (table[name].to_pylist() for name in table.schema.names)
        for number, values in zip(e, zip(least, most, strict=True), strict=True):
            if number not in known:
                known[number] = values
                assert values == (recorded[epoch], recorded[epoch])
    assert known[6] == (7, 7)
    assert len(known) == 7


@pytest.mark.slow
def test_rows_without_a_key(spark: SparkSession, store: Store, server: ShareServer, tmp_path: Path) -> None:
    """They are as many as are granted, without the number that tells equal rows apart."""
    opened = store["q"].publish("us", columns=["value"]).profile(server.url)
    theirs = ss.open_share(opened, cache=tmp_path / "copy")
    frame = ss.shared_frame(tmp_path / "ours", "values", theirs, query="q")
    assert COPY in theirs["q"].live().table().schema.names
    assert frame.frame().columns == ["value"]
    frame.set(1)
    source = Source(spark, tmp_path / "input", "v long")
    source.add({"v": [1, 2]})
    rows = source.stream().join(frame.frame(), F.col("v") == F.col("value")).groupBy("v").count()
    running = ss.start(rows, "counted", tmp_path / "ours", trigger="available-now", shared=(frame,))
    running.wait(timeout=300)
    running.stop()
    found = running.history.live().result().to_pandas().set_index("v")["count"]
    assert found.to_dict() == {1: 1, 2: 2}
