"""Values of Spark's UnsafeRow that hold no others: numbers, decimals, strings, intervals, times."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamstate.snapshots.checkpoint.decoding.arrow_types import arrow_type, decimal_digits, stored_as
from streamstate.snapshots.checkpoint.decoding.failures import DamagedChangelogError

Bytes: TypeAlias = NDArray[np.uint8]
Positions: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_] | None
"""True where a value is null; None if there are no nulls."""

_FIXED = {
    "byte": "<i1",
    "short": "<i2",
    "integer": "<i4",
    "long": "<i8",
    "float": "<u4",
    "double": "<u8",
    "boolean": "<i1",
    "date": "<i4",
    "timestamp": "<i8",
    "timestamp_ntz": "<i8",
    "time": "<i8",
}
_LONG_DECIMAL = 18
"""Up to so many digits a decimal is a long."""
_INTERVAL_BYTES = 16
_MICROSECONDS = 1_000_000
_NANOSECONDS = 1_000_000_000
_DAY = 86_400 * _NANOSECONDS


def require(holds: object, what: str) -> None:
    """Check what holds in every file that Spark wrote."""
    if not holds:
        raise DamagedChangelogError(f"The changelog is damaged: {what}.")


def fixed_width(kind: str) -> np.dtype | None:
    """Return the type of values in place; None if an array has only the place and the size of their bytes."""
    name = stored_as(kind)
    digits = decimal_digits(name)
    if name in _FIXED or (digits and digits[0] <= _LONG_DECIMAL):
        return np.dtype(_FIXED.get(name, "<i8"))
    return None


def gathered(buffer: Bytes, positions: Positions, size: int) -> NDArray[np.void]:
    """Return the ``size`` bytes at each of some positions, which need not be aligned."""
    return np.ndarray(len(buffer) - size + 1, f"V{size}", buffer, 0, (1,))[positions]


def validity(null: Mask) -> pa.Buffer | None:
    """Arrow's bitmap of the values that are not null."""
    return None if null is None else pa.py_buffer(np.packbits(~null, bitorder="little"))


def fixed_values(values: NDArray[np.generic], null: Mask, kind: str) -> pa.Array:
    """Return values that need no more than eight bytes.

    ``values`` are those of :func:`fixed_width`, or whole words, of which the lowest bytes count.
    """
    name = stored_as(kind)
    if name == "void":
        return pa.nulls(len(values), pa.bool_())
    data = values.astype(_FIXED.get(name, "<i8"))
    if name == "time":
        return _times(data, null)
    if name == "boolean":
        data = np.packbits(data != 0, bitorder="little")
    if decimal_digits(name):
        return _decimals(data, data >> 63, null, kind)
    return pa.Array.from_buffers(arrow_type(kind), len(values), [validity(null), pa.py_buffer(data)])


def sized_values(buffer: Bytes, starts: Positions, sizes: Positions, null: Mask, kind: str) -> pa.Array:
    """Return values at some positions; nulls have no bytes."""
    name = stored_as(kind)
    if name == "interval":
        return _calendar_intervals(buffer, starts, sizes, null)
    if decimal_digits(name):
        return _long_decimals(buffer, starts, sizes, null, kind)
    return _strings(buffer, starts, sizes, null, arrow_type(kind))


def _strings(buffer: Bytes, starts: Positions, sizes: Positions, null: Mask, kind: pa.DataType) -> pa.Array:
    # Arrow copies values in order as one array's, whose every second value is the gap between two of them.
    cuts, places = _cuts(starts, sizes), np.arange(0, 2 * len(starts), 2)
    if not _ascending(cuts):
        order = np.argsort(np.where(sizes == 0, 0, starts))
        cuts = _cuts(starts[order], sizes[order])
        places[order] = np.arange(0, 2 * len(starts), 2)
    if len(cuts) and _ascending(cuts):
        source = [None, pa.py_buffer(cuts), pa.py_buffer(buffer)]
        copied = pa.Array.from_buffers(pa.binary(), len(cuts) - 1, source).take(pa.array(places))
        return pa.Array.from_buffers(kind, len(starts), [validity(null), *copied.buffers()[1:]], offset=copied.offset)
    # Only values that share bytes, such as those of a row that is asked for twice.
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    data = buffer[np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], sizes)]
    buffers = [validity(null), pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(kind, len(starts), buffers)


def _cuts(starts: Positions, sizes: Positions) -> NDArray[np.int32]:
    """Return the start and the end of each value; those without bytes are behind the one before."""
    ends = np.maximum.accumulate(starts + sizes)
    cuts = np.empty(2 * len(starts), np.int32)
    cuts[::2] = np.where(sizes == 0, np.concatenate(([0], ends[:-1])), starts)
    cuts[1::2] = cuts[::2] + sizes
    return cuts


def _ascending(cuts: NDArray[np.int32]) -> bool:
    return bool((cuts[1:] >= cuts[:-1]).all())


def _long_decimals(buffer: Bytes, starts: Positions, sizes: Positions, null: Mask, kind: str) -> pa.Array:
    """Decimals as big-endian bytes, at most 16; in front of them in the row are at least 16 others."""
    present = True if null is None else ~null
    require(((sizes > 0) & (sizes <= 16) | ~np.asarray(present)).all(), "a decimal has the wrong size")
    last = np.where(present, starts + sizes - 16, 0)
    words = gathered(buffer, last, 16).view(">i8").astype(np.int64).reshape(-1, 2)
    # Bytes in front of a value are shifted out, and its sign is shifted in.
    unused_bits = 8 * np.clip(8 - sizes, 0, 7)
    low = words[:, 1] << unused_bits >> unused_bits
    unused_bits = 8 * np.clip(16 - sizes, 0, 7)
    high = np.where(sizes > 8, words[:, 0] << unused_bits >> unused_bits, low >> 63)
    return _decimals(low, high, null, kind)


def _decimals(low: Positions, high: Positions, null: Mask, kind: str) -> pa.Array:
    data = pa.py_buffer(np.stack([low, high], axis=1))
    decimals = pa.Array.from_buffers(arrow_type(kind), len(low), [validity(null), data])
    try:
        decimals.validate(full=True)
    except pa.ArrowInvalid as error:
        raise DamagedChangelogError(f"The changelog is damaged: {error}.") from None
    return decimals


def _calendar_intervals(buffer: Bytes, starts: Positions, sizes: Positions, null: Mask) -> pa.Array:
    present = np.flatnonzero(~null) if null is not None else np.arange(len(starts))
    require((sizes[present] == _INTERVAL_BYTES).all(), "an interval has the wrong size")
    layout = np.dtype([("months", "<i4"), ("days", "<i4"), ("microseconds", "<i8")])
    texts = np.full(len(starts), None, object)
    if len(present):
        found = gathered(buffer, starts[present], _INTERVAL_BYTES).view(layout)
        texts[present] = [_interval_text(*interval) for interval in found.tolist()]
    return pa.array(texts, pa.string())


def _interval_text(months: int, days: int, microseconds: int) -> str:
    """Return an interval as Spark's ``CalendarInterval.toString`` has it: each number with the sign of its whole."""
    sign = -1 if microseconds < 0 else 1
    minutes, rest = divmod(abs(microseconds), 60 * _MICROSECONDS)
    month_sign = -1 if months < 0 else 1
    years, rest_months = divmod(abs(months), 12)
    numbers = {
        "years": month_sign * years,
        "months": month_sign * rest_months,
        "days": days,
        "hours": sign * (minutes // 60),
        "minutes": sign * (minutes % 60),
    }
    parts = [f"{number} {unit}" for unit, number in numbers.items() if number]
    if rest:
        parts.append(f"{'-' if sign < 0 else ''}{_seconds_text(rest, _MICROSECONDS)} seconds")
    return " ".join(parts) or "0 seconds"


def _times(values: Positions, null: Mask) -> pa.Array:
    if null is not None:
        values = np.where(null, 0, values)
    require(((values >= 0) & (values < _DAY)).all(), "a time of day is outside of the day")
    return pa.array([_time_text(value) for value in values.tolist()], pa.string(), mask=null)


def _time_text(nanoseconds: int) -> str:
    minutes, rest = divmod(nanoseconds, 60 * _NANOSECONDS)
    seconds = _seconds_text(rest, _NANOSECONDS)
    return f"{minutes // 60:02}:{minutes % 60:02}:{'0' if rest < 10 * _NANOSECONDS else ''}{seconds}"


def _seconds_text(parts: int, parts_per_second: int) -> str:
    """Seconds with as many decimals as they need."""
    seconds, fraction = divmod(parts, parts_per_second)
    digits = str(parts_per_second + fraction)[1:].rstrip("0")
    return f"{seconds}.{digits}" if digits else f"{seconds}"
