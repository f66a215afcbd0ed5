"""The events of NEXMark: determined by seed and number, in the published proportions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.nexmark.generator import AUCTION, BID, PERSON, Events

COUNT = 50_000


@pytest.fixture(scope="module")
def events() -> pa.Table:
    """The first events of a sequence."""
    return Events(seed=3).table(0, COUNT)


def fields(events: pa.Table, kind: int) -> dict[str, np.ndarray]:
    """The columns of one type of event, with the numbers."""
    chosen = events.filter(pc.field("event_type") == kind)
    rows = chosen[("person", "auction", "bid")[kind]].combine_chunks()
    columns = {field.name: rows.field(at).to_numpy(zero_copy_only=False) for at, field in enumerate(rows.type)}
    return columns | {"number": chosen["number"].to_numpy()}


@given(
    seed=st.integers(0, 2**63),
    first=st.integers(0, 10**9),
    lengths=st.lists(st.integers(0, 130), min_size=1, max_size=4),
)
def test_events_do_not_depend_on_the_parts_in_which_they_are_made(seed: int, first: int, lengths: list[int]) -> None:
    """The same seed and range of numbers always give the same events."""
    sequence, starts = Events(seed), first + np.cumsum([0, *lengths])
    parts = [sequence.table(int(start), int(start) + length) for start, length in zip(starts, lengths, strict=False)]
    assert pa.concat_tables(parts).combine_chunks().equals(sequence.table(first, int(starts[-1])).combine_chunks())


def test_another_seed_makes_other_events(events: pa.Table) -> None:
    """All prices but a few differ."""
    other = fields(Events(seed=4).table(0, COUNT), BID)
    assert np.mean(other["price"] == fields(events, BID)["price"]) < 0.01


def test_proportions(events: pa.Table) -> None:
    """One person, three auctions and 46 bids in fifty events; half, or three quarters, of the references are hot."""
    assert np.bincount(events["event_type"]).tolist() == [COUNT // 50, COUNT // 50 * 3, COUNT // 50 * 46]
    auctions, bids = fields(events, AUCTION), fields(events, BID)
    assert np.mean(bids["auction"] % 100 == 0) == pytest.approx(1 / 2 + 1 / 200, abs=0.01)
    assert np.mean(bids["bidder"] % 100 == 1) == pytest.approx(3 / 4 + 1 / 400, abs=0.01)
    assert np.mean(auctions["seller"] % 100 == 0) == pytest.approx(3 / 4 + 1 / 400, abs=0.03)
    assert set(auctions["category"]) == {10, 11, 12, 13, 14}
    assert np.median(bids["price"]) == pytest.approx(100_000, rel=0.1)


def test_references_are_to_events_that_are_near(events: pa.Table) -> None:
    """Bids are for one of the last hundred auctions or the next ten, or the hot one, by an active person."""
    persons, auctions, bids = (fields(events, kind) for kind in (PERSON, AUCTION, BID))
    assert persons["id"].tolist() == list(range(1000, 1000 + len(persons["id"])))
    assert auctions["id"].tolist() == list(range(1000, 1000 + len(auctions["id"])))
    newest = 1000 + bids["number"] // 50 * 3 + 2
    assert (bids["auction"] <= newest + 10).all()
    assert (bids["auction"] >= newest - 102).all()
    assert (bids["bidder"] <= 1000 + bids["number"] // 50 + 10).all()
    assert (auctions["seller"] <= 1000 + auctions["number"] // 50 + 10).all()


def test_times_and_sizes(events: pa.Table) -> None:
    """Events come at the rate, auctions end within the longest, and events have the published mean sizes."""
    times = events["date_time"].cast(pa.int64()).to_numpy()
    assert (np.diff(times) >= 0).all()
    assert times[-1] - times[0] == (COUNT - 1) * 1000 // 10_000
    auctions = fields(events, AUCTION)
    lasts = auctions["expires"].astype("M8[ms]").astype(int) - times[auctions["number"]]
    assert 0 < lasts.min() <= lasts.max() <= Events().longest_auction
    extra = np.mean([len(text) for text in fields(events, BID)["extra"]])
    assert 32 + extra == pytest.approx(100, abs=1)


def test_files_hold_the_sequence_and_a_close(tmp_path: Path) -> None:
    """Files of any size hold the same events; those that close the windows come an hour later."""
    sequence = Events(seed=5, rate=100)
    sequence.write(tmp_path / "input", 0, 230, 100)
    sequence.close(tmp_path / "input", 230)
    files = sorted((tmp_path / "input").iterdir(), key=lambda file: file.stat().st_mtime_ns)
    assert files == sorted(files)
    tables = [pq.read_table(file) for file in files]
    assert [table.num_rows for table in tables] == [100, 100, 30, 50]
    assert pa.concat_tables(tables[:3]).combine_chunks().equals(sequence.table(0, 230).combine_chunks())
    gap = tables[3]["date_time"][0].as_py() - tables[2]["date_time"][-1].as_py()
    assert gap.total_seconds() >= 3600
