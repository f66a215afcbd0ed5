"""The simulations of the tutorials: files that arrive on command, and a power cut."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from streamstate.errors import InvalidArgumentError
from streamstate.snapshots.store.delta import Place, append_once, open_or_create
from streamstate.tutorials.data import prepare
from streamstate.tutorials.staging import Arrivals, Feed, power_cut, wait_until


def test_files_arrive_in_order_until_none_are_left(tmp_path: Path) -> None:
    """Each call delivers one file, or the latest one again on request; after the last file it raises an error."""
    data = prepare(tmp_path / "data", days_per_file=1, first=date(2013, 1, 1), last=date(2013, 1, 2))
    arrivals = Arrivals(data, tmp_path / "arriving")
    with pytest.raises(InvalidArgumentError, match="No file has arrived"):
        arrivals.again()
    assert [arrivals.next(), arrivals.again()] == ["2013-01-01.parquet", "2013-01-01-repeat-1.parquet"]
    assert arrivals.next() == "2013-01-02.parquet"
    with pytest.raises(InvalidArgumentError, match="All files have arrived"):
        arrivals.next()
    assert len(list((tmp_path / "arriving" / "flights").glob("*"))) == 3
    with pytest.raises(InvalidArgumentError, match="no prepared flights"):
        Arrivals(tmp_path, tmp_path / "arriving")


def test_files_arrive_in_rounds_if_they_never_end(tmp_path: Path) -> None:
    """After the last file comes the first one again, with the same rows and a name of its own."""
    data = prepare(tmp_path / "data", days_per_file=1, first=date(2013, 1, 1), last=date(2013, 1, 2))
    arrivals = Arrivals(data, tmp_path / "arriving", forever=True)
    first, _second, third, fourth, fifth = (arrivals.next() for _ in range(5))
    assert [third, fourth] == ["2013-01-01-round-2.parquet", "2013-01-02-round-2.parquet"]
    assert fifth == "2013-01-01-round-3.parquet"
    arrived = tmp_path / "arriving" / "flights"
    assert (arrived / first).read_bytes() == (arrived / third).read_bytes() == (arrived / fifth).read_bytes()


def test_a_feed_lets_files_arrive_at_its_pace(tmp_path: Path) -> None:
    """None while it pauses, then one after the other to the last, and none after its end."""
    data = prepare(tmp_path / "data", days_per_file=1, first=date(2013, 1, 1), last=date(2013, 1, 4))
    arrived = tmp_path / "arriving" / "flights"
    arrivals = Arrivals(data, tmp_path / "arriving")
    feed = Feed(arrivals, None)
    assert not wait_until(lambda: any(arrived.iterdir()), timeout=0.3)
    feed.every = 60
    assert wait_until(lambda: any(arrived.iterdir()), timeout=20)
    assert len(list(arrived.glob("[!.]*"))) == 1
    feed.every = 0.01
    assert wait_until(lambda: len(list(arrived.glob("[!.]*"))) == 4, timeout=20)
    feed.stop()


def test_a_power_cut_ends_a_block_before_its_next_commit(tmp_path: Path) -> None:
    """The given number of commits succeed, exception handlers do not see the cut, and commits work again afterwards."""
    place = Place(str(tmp_path / "table"))
    open_or_create(place, pa.schema([("n", pa.int64())]), "a table")

    def commit(version: int) -> None:
        append_once(place, "test", version, lambda _: pa.table({"n": pa.array([version], pa.int64())}))

    with power_cut(after=2):
        for version in range(5):
            commit(version)
    table = DeltaTable(tmp_path / "table")
    assert table.to_pyarrow_table()["n"].to_pylist() in ([0, 1], [1, 0])
    commit(2)
    table.update_incremental()
    assert table.to_pyarrow_table().num_rows == 3
