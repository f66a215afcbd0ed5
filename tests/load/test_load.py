"""The load of a history: rates, backlog, latency and state of each epoch, and what is not known."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from synthetic import START

import streamstate as ss
from load.stores import STEP, entry, kafka, of_states, written
from streamstate.errors import InvalidArgumentError, StoreError
from streamstate.reports import Load, Store
from streamstate.snapshots.store.entries import Entry, as_rows
from streamstate.snapshots.store.epoch_load import EpochLoad, ShedCounts, SourceLoad, TaskLoad
from streamstate.snapshots.store.layout import MANIFEST, Layout
from streamstate.snapshots.store.manifest import Manifest


def test_rates_follow_from_what_was_read_and_what_waits(tmp_path: Path) -> None:
    """What came since the last planning is what was read, and by how much the backlog grew."""
    loads = [kafka(100, 0), kafka(100, 50), kafka(100, 120), kafka(160, 20)]
    frame = written(tmp_path, [entry(epoch, load) for epoch, load in enumerate(loads)]).load().to_pandas()
    assert math.isnan(frame["arrival_rate"][0])
    assert frame["arrival_rate"][1:].tolist() == [150 / STEP, 170 / STEP, 60 / STEP]
    assert frame["service_rate"].tolist() == [20, 20, 20, 32]
    assert frame["backlog_rows"].tolist() == [0, 50, 120, 20]
    assert frame["backlog_bytes"].isna().all()


def test_the_time_to_catch_up_is_the_backlog_over_what_is_spare(tmp_path: Path) -> None:
    """It is zero without a backlog, and infinite if as much arrives as is processed."""
    calm = [kafka(100, 100), kafka(100, 60), kafka(100, 20), kafka(50, 0)]
    frame = written(tmp_path / "calm", [entry(epoch, load) for epoch, load in enumerate(calm)]).load().to_pandas()
    assert frame["catch_up_seconds"][1:].tolist() == [60 / 4, 20 / 4, 0]  # ten rows a second are read, and six come
    busy = [kafka(100, 0), kafka(100, 150), kafka(100, 300)]
    frame = written(tmp_path / "busy", [entry(epoch, load) for epoch, load in enumerate(busy)]).load().to_pandas()
    assert frame["catch_up_seconds"].tolist() == [0, math.inf, math.inf], "though an epoch reads faster than rows come"


def test_latency_is_that_of_the_oldest_row(tmp_path: Path) -> None:
    """Without a backlog it came after the epoch before was planned; with one, when it was the newest that waited."""
    loads = [kafka(100, 0), kafka(100, 100), kafka(100, 0), kafka(100, 0)]
    frame = written(tmp_path, [entry(epoch, load) for epoch, load in enumerate(loads)]).load().to_pandas()
    # Epoch 2 reads the rows that waited when epoch 1 was planned, which came after epoch 0 was.
    assert frame["latency_seconds"][1:].tolist() == [STEP + 5, 2 * STEP + 5, STEP + 5]


@pytest.mark.parametrize("seed", range(6))
def test_latency_equals_that_of_rows_one_by_one(tmp_path: Path, seed: int) -> None:
    """The oracle follows each row from the planning before it came to its epoch's end."""
    random = np.random.default_rng(seed)
    came, queue, loads, expected = 0, list[int](), list[EpochLoad](), list[float]()
    for epoch in range(30):
        came = int(random.integers(1, 200))
        queue += [epoch - 1] * came  # came after the planning of the epoch before
        read = min(len(queue), 100)
        oldest, queue = queue[0], queue[read:]
        loads.append(kafka(read, len(queue)))
        expected.append(math.nan if oldest < 0 else (epoch - oldest) * STEP + 5)
    frame = written(tmp_path, [entry(epoch, load) for epoch, load in enumerate(loads)]).load().to_pandas()
    np.testing.assert_allclose(frame["latency_seconds"], expected)


def test_after_a_gap_no_rate_is_made_up(tmp_path: Path) -> None:
    """What the missing epoch read is not known."""
    found = [entry(0, kafka(10, 0)), Entry.gap(1), entry(2, kafka(10, 0)), entry(3, kafka(10, 0))]
    frame = written(tmp_path, found).load().to_pandas()
    assert frame["epoch"].tolist() == [0, 2, 3]
    assert frame["arrival_rate"].isna().tolist() == [True, True, False]


def test_latency_after_a_gap_counts_from_the_gap(tmp_path: Path) -> None:
    """What waited before it was read in it, as far as one can know."""
    found = [entry(0, kafka(10, 900)), Entry.gap(1), *(entry(epoch, kafka(10, 0)) for epoch in (2, 3))]
    frame = written(tmp_path, found).load().to_pandas()
    assert frame["latency_seconds"].isna().tolist() == [True, True, False]
    assert frame["latency_seconds"][2] == STEP + 5


def test_where_a_backlog_begins_to_be_known_no_rate_is_made_up(tmp_path: Path) -> None:
    """Its rows did not all come since the epoch before."""
    found = [entry(0, kafka(10, None)), entry(1, kafka(10, 500)), entry(2, kafka(10, 510))]
    frame = written(tmp_path, found).load().to_pandas()
    assert frame["arrival_rate"].isna().tolist() == [True, True, False]
    assert frame["arrival_rate"][2] == 20 / STEP


def test_tasks_and_shed_rows_are_shown(tmp_path: Path) -> None:
    """Those of epochs without them are missing."""
    tasks = TaskLoad(4, 0.5, 2.0, 3, 900, 100)
    load = replace(kafka(10, 0), tasks=tasks, shed=ShedCounts(10, 7, {"sampled": 3}, 2), watermark_lag=60.0)
    frame = written(tmp_path, [entry(0, kafka(10, 0)), entry(1, load)]).load().to_pandas()
    assert frame["worst_task_seconds"][1] == 2.0
    assert frame["median_task_seconds"].isna().tolist() == [True, False]
    assert frame["kept_rows"].tolist() == [pd.NA, 7]
    assert frame["dropped_rows"][1] == 3
    assert frame["watermark_lag_seconds"][1] == 60


def test_sources_partitions_and_operators_are_long_frames(tmp_path: Path) -> None:
    """One row for each, in Spark's order; partitions that an epoch does not have are left out."""
    two = replace(
        kafka(10, 5), sources=(SourceLoad("Kafka", 10, 5, None, {"t/0": 2, "t/1": 3}), SourceLoad("files", 4))
    )
    load = written(tmp_path, [entry(0, kafka(10, 7)), entry(1, two)]).load()
    assert load.sources()[["epoch", "source", "rows", "backlog_rows"]].values.tolist() == [
        [0, "Kafka", 10, 7],
        [1, "Kafka", 10, 5],
        [1, "files", 4, pd.NA],
    ]
    assert load.partitions()[["epoch", "partition", "backlog_rows"]].values.tolist() == [
        [0, "flights/0", 7],
        [1, "t/0", 2],
        [1, "t/1", 3],
    ]
    operators = load.operators()
    assert operators[["epoch", "operator", "rows", "rocksdbSstFileSize"]].values.tolist() == [
        [0, "op0", 100, 10],
        [1, "op0", 100, 10],
    ]
    assert load.to_pandas()["state_bytes"].tolist() == [1010, 1010]


def test_operators_of_an_epoch_are_numbered(tmp_path: Path) -> None:
    """As the state tables are named."""
    one = kafka(1, 0)
    several = replace(one, operators=one.operators * 3)
    load = written(tmp_path, [entry(0, several), entry(1, one), entry(2, several)]).load()
    assert load.operators()["operator"].tolist() == ["op0", "op1", "op2", "op0", "op0", "op1", "op2"]
    assert load.to_pandas()["state_rows"].tolist() == [300, 100, 300]


def test_a_store_without_the_column_opens_and_is_appended_to(tmp_path: Path) -> None:
    """The columns of a manifest grow with the version; rows of before have no load."""
    old = pa.schema([field for field in MANIFEST if field.name != "load"])
    history = written(tmp_path, [entry(epoch, None) for epoch in range(3)])
    place = Layout.at(tmp_path).manifest("q")
    rows = history.recorded.entries()
    files = Path(place.uri)
    for file in [*files.rglob("*")]:
        if file.is_file():
            file.unlink()
    from streamstate.snapshots.store.delta import append_once, open_or_create
    from streamstate.snapshots.store.delta.commits import Handle

    open_or_create(place, old, "streamstate: the epochs of one query")
    append_once(Handle(place), "q/_epochs", 2, lambda _newest: as_rows([*rows]).select(old.names))
    assert "load" not in DeltaTable(place.uri).schema().to_arrow().names
    history = ss.open_store(tmp_path)["q"]
    assert history.load().to_pandas()["seconds"].tolist() == [4, 4, 4]
    assert "Spark's report on the epochs was not at hand" in history.load().unknown[0]

    Manifest(Layout.at(tmp_path), "q").append([entry(3, kafka(10, 2))], "q/_epochs")
    frame = ss.open_store(tmp_path)["q"].load().to_pandas()
    assert frame["seconds"].tolist() == [4, 4, 4, 5]
    assert frame["rows"].isna().tolist() == [True, True, True, False]
    assert frame["backlog_rows"][3] == 2


def test_retention_compaction_and_copies_keep_the_load(tmp_path: Path) -> None:
    """They rewrite the manifest's rows whole."""
    from synthetic import write

    loads = [kafka(epoch, 0) for epoch in range(12)]
    write(tmp_path, [{"a": epoch} for epoch in range(12)], facts=[{"load": load.text()} for load in loads])
    store = ss.open_store(tmp_path)
    store["q"].compact()
    store["q"].retain(last=4)
    assert store["q"].load().to_pandas()["rows"].tolist() == [8, 9, 10, 11]
    assert store.overview()["state"].tolist() == ["captured"]
    assert store["q"].epochs()["load"].notna().all()


def test_a_checkpoint_that_ran_elsewhere_shows_what_it_tells(store: Store) -> None:
    """Durations and the state's rows; backlog, tasks and bytes are missing, and a sentence says why."""
    load = store[store.queries()[0]].load()
    frame = load.to_pandas()
    assert len(frame) == 5
    assert frame["state_rows"].notna().all()
    growth = store[store.queries()[0]].growth().groupby("epoch")["rows"].sum()
    assert frame["state_rows"].tolist() == growth.tolist()
    assert frame[["backlog_rows", "state_bytes", "worst_task_seconds", "rows"]].isna().all(axis=None)
    said = " ".join(load.unknown)
    assert "was not at hand" in said
    assert "only Kafka's offsets tell" in said
    assert load.sources().empty
    assert load.operators().empty
    assert load.partitions().empty


def test_kafkas_rows_follow_from_offsets_where_spark_did_not_report(tmp_path: Path) -> None:
    """The difference of the end offsets is what the epoch read."""
    ends = [f'[{{"t": {{"0": {end}}}}}]' for end in (10, 25, 60)]
    load = written(tmp_path, [entry(epoch, None, offsets=end) for epoch, end in enumerate(ends)]).load()
    assert load.to_pandas()["rows"].tolist() == [pd.NA, 15, 35]
    assert "differences of Kafka's offsets" in " ".join(load.unknown)


def test_last_limits_the_epochs(tmp_path: Path) -> None:
    """The newest so many."""
    history = of_states(tmp_path, range(1, 20))
    assert history.load(last=3).to_pandas()["epoch"].tolist() == [16, 17, 18]
    with pytest.raises(InvalidArgumentError, match="last=0"):
        history.load(last=0)


def test_an_empty_history_has_no_load(tmp_path: Path) -> None:
    """Nothing is captured yet."""
    load = written(tmp_path, [Entry.gap(0)]).load()
    assert isinstance(load, Load)
    assert load.to_pandas().empty
    assert "No epoch is captured yet." in repr(load)


def test_a_text_that_is_no_load_is_named(tmp_path: Path) -> None:
    """Another program may have written it."""
    history = written(tmp_path, [entry(0, None, load='{"seconds": "long"}')])
    with pytest.raises(StoreError, match="a load that cannot be read"):
        history.load().to_pandas()


def test_ten_thousand_epochs_take_a_fraction_of_a_second(tmp_path: Path) -> None:
    """Columns, not objects: 0.3 s are wanted, and a busy machine gets a second."""
    loads = [replace(kafka(100, 5, state=epoch + 1), tasks=TaskLoad(4, 1, 2, 3)).text() for epoch in range(10_000)]
    moments = [START + timedelta(seconds=5 * epoch) for epoch in range(10_000)]
    empty = [entry(epoch, None, began=moments[epoch], load=load) for epoch, load in enumerate(loads)]
    history = written(tmp_path, empty)
    history.load().to_pandas()
    took = []
    for _ in range(3):
        begin = time.perf_counter()
        history.load().to_pandas()
        took.append(time.perf_counter() - begin)
    assert min(took) < 1


def test_write_deltalake_sees_the_column(tmp_path: Path) -> None:
    """The manifest stays plain Delta: another writer's table with the column reads the same."""
    history = of_states(tmp_path / "store", [1, 2])
    place = Layout.at(tmp_path / "store").manifest("q")
    rows = pa.table(DeltaTable(place.uri).to_pyarrow_table())
    write_deltalake(str(tmp_path / "copy"), rows)
    copied = DeltaTable(tmp_path / "copy").to_pyarrow_table()["load"].to_pylist()
    assert [EpochLoad.of(text).operators[0].rows for text in copied] == [1, 2]
    assert history.load().to_pandas()["state_rows"].tolist() == [1, 2]
