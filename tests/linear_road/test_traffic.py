"""The generated traffic, and its answers by the oracle and by the query."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from benchmarks.linear_road.measure import Run, kill, rescale
from benchmarks.linear_road.oracle import Oracle
from benchmarks.linear_road.traffic import EXIT, FEET, REPORT, Traffic
from linear_road.small_roads import by_query

SMALL = Traffic(expressways=2, seconds=120, first=5, last=40)
BUSY = Traffic(expressways=1, seconds=240, first=600, last=1000)


def test_the_same_seed_gives_the_same_stream(tmp_path: Path) -> None:
    """Byte for byte, and another seed another one."""
    streams = [tmp_path / name for name in ("one", "two", "other")]
    for folder, seed in zip(streams, (1, 1, 2), strict=True):
        Traffic(2, 60, seed, first=5, last=20).write(folder)
    one, two, other = (
        [file.read_bytes() for file in sorted(folder.rglob("*.*")) if file.is_file()] for folder in streams
    )
    assert len(one) == 62
    assert one == two != other


def test_cars_report_every_30_seconds_and_enter_each_segment(tmp_path: Path) -> None:
    """From the ramp to the exit; the load grows from ``first`` to ``last``."""
    rows = pq.read_table(SMALL.write(tmp_path)).to_pandas()
    cars = rows[rows["type"] == REPORT].sort_values(["vid", "time"])
    same = cars["vid"] == cars["vid"].shift()
    again = same & (cars["time"] - cars["time"].shift() > 60)
    assert set(cars["time"].diff()[same & ~again]) == {30}
    assert (cars.loc[~same, "lane"] == 0).all()
    assert set(cars["seg"].diff().abs()[same & ~again]) <= {0, 1}
    assert (cars["seg"] == cars["pos"] // FEET).all()
    assert not (cars["lane"].shift() == EXIT)[same & ~again].any()
    assert cars.groupby(cars["time"] // 30).size().tolist() == [300, 1000, 1700, 2400]


def test_query_and_oracle_give_the_same_answers_to_traffic(tmp_path: Path) -> None:
    """All kinds of them, with tolls above 0."""
    files = BUSY.write(tmp_path)
    table = pq.read_table(files)
    rows = np.rec.fromarrays([table[name].to_numpy() for name in table.column_names], names=table.column_names)
    oracle = Oracle(files, tmp_path / "past")
    pd.testing.assert_frame_equal(by_query(rows, tmp_path), oracle.answers().to_pandas(), check_dtype=False)
    mine = tmp_path / "mine.parquet"
    pq.write_table(oracle.answers(), mine)
    judged = oracle.judge([mine])
    assert (judged.missing, judged.wrong) == (0, 0)
    assert min(judged.kinds.values()) > 0
    assert len(judged.kinds) == 4
    assert judged.tolls > 1000
    assert (oracle.answers().to_pandas().query("type == 2")["value"] > 0).any()
    pq.write_table(oracle.answers().slice(1), mine)
    assert (oracle.judge([mine, mine]).missing, oracle.judge([mine]).missing) == (1, 1)
    assert oracle.judge([mine, mine]).wrong == judged.answers - 1


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "disturb",
    [
        pytest.param(None, id="undisturbed"),  # as the benchmark at a small size
        *(pytest.param(disturb, id=disturb.__name__) for disturb in (kill, rescale)),
    ],
)
def test_the_query_gives_every_answer_once(tmp_path: Path, disturb: Callable[[Run], None] | None) -> None:
    """Four minutes of an expressway in six seconds, captured; also if it is killed or rescaled meanwhile."""
    files = BUSY.write(tmp_path / "made")
    run = Run(tmp_path / "run", files, tmp_path / "made" / "past", captured=True, partitions=2, speed=40)
    run.drive(disturb)
    judged = Oracle(files, run.past).judge(run.answers())
    assert (judged.missing, judged.wrong) == (0, 0)
    assert set(run.response_times()) == set(range(5, BUSY.seconds))
    assert (run.standing > 0) == (disturb is not None)
