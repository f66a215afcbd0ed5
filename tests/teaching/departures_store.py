"""A store with the state of the query ``delays``, computed from the flights and written without Spark."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pandas as pd
import pyarrow as pa

from streamstate.snapshots.store.changelog import PUT, log_schema
from streamstate.snapshots.store.delta import append_once, open_or_create
from streamstate.snapshots.store.delta.commits import Handle
from streamstate.snapshots.store.entries import Entry, TableEntry
from streamstate.snapshots.store.layout import CAPTURED, Layout
from streamstate.snapshots.store.manifest import Manifest
from streamstate.snapshots.store.registry import register
from streamstate.tutorials import flights

KEY = ["carrier", "origin"]
START = datetime(2026, 1, 1, tzinfo=UTC)


def write(path: Path, data: Path) -> None:
    """Write a store whose query ``delays`` has read a file of three days in each of 30 epochs.

    Args:
        path: the store.
        data: where the flights are written, unless they are there.
    """
    prepared = flights.prepare(data, days_per_file=3, last=date(2013, 3, 31))
    rows, entries, read = [], [], pd.DataFrame()
    for epoch, file in enumerate(sorted((prepared / "flights").glob("*.parquet"))):
        arrived = pd.read_parquet(file, columns=[*KEY, "dep_delay"])
        read = pd.concat([read, arrived])
        total = read.groupby(KEY)["dep_delay"].agg(["size", "sum", "count", "max"])
        total.columns = ["count", "sum", "count_2", "max"]
        added = total[total.index.isin(pd.MultiIndex.from_frame(arrived[KEY]))]
        rows.append(added.reset_index().assign(_epoch=epoch))
        facts = {"op0": TableEntry(len(total), len(added), None)}
        at = START + timedelta(minutes=epoch)
        entries.append(Entry(epoch, CAPTURED, committed_at=at, offsets="[0]", tables=facts))
    frame = pd.concat(rows).assign(_change=PUT, _partition=0)
    log = pa.schema([("_epoch", pa.int64()), ("_change", pa.string()), ("_partition", pa.int32())])
    for name in KEY:
        log = log.append(pa.field(name, pa.string()))
    for name, kind in {"count": pa.int64(), "sum": pa.float64(), "count_2": pa.int64(), "max": pa.float64()}.items():
        log = log.append(pa.field(name, kind))
    layout = Layout.at(path)
    register(layout, "delays", "id", "checkpoint")
    open_or_create(layout.changelog("delays", "op0"), log_schema(log, KEY, None), "log")
    table = pa.Table.from_pandas(frame[log.names], schema=log, preserve_index=False, safe=False)
    append_once(Handle(layout.changelog("delays", "op0")), "delays/op0", len(entries) - 1, lambda _: table)
    Manifest(layout, "delays").append(entries, "delays/_epochs")
