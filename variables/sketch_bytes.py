"""Checks of the bytes of sketches before Apache's library reads them.

The library trusts them: lengths and levels that do not fit lead it outside of its memory, which ends the process. The
layouts are those of DataSketches (``HllSketchImpl``, ``kll_sketch``), in the forms that streamstate writes.
"""

from __future__ import annotations

import struct
from itertools import pairwise

import numpy as np

from streamstate.errors import VariableError

LG_K, K = 12, 200
"""The sizes of the sketches that streamstate makes: 2¹² registers in HLL, and KLL's k."""
_HLL, _KLL = 7, 15
_LIST, _SET, _REGISTERS = 0x08, 0x09, 0x0A
_MOST_LEVELS, _LEAST_ITEMS = 60, 8
_HEAD, _BOUNDS = struct.Struct("<QHBx"), struct.Struct("<dd")


def checked(data: bytes, *, is_hll: bool) -> bytes:
    """Return the bytes of a sketch, if the library can read them safely.

    Raises:
        VariableError: it cannot.
    """
    try:
        fits = _is_hll(data) if is_hll else _is_kll(data)
    except (IndexError, ValueError, struct.error, TypeError):
        fits = False
    if fits:
        return data
    raise VariableError(
        f"The bytes of {'an HLL' if is_hll else 'a KLL'} sketch are damaged, so they were not read.\n"
        "Set the variable again, or restore its versions from a backup."
    )


def _is_hll(data: bytes) -> bool:
    ints, version, family, lg_k, lg_array, flags, count, mode = data[:8]
    if (version, family, lg_k) != (1, _HLL, LG_K) or flags & ~0x1C or not flags & 0x08:
        return False
    if mode == _REGISTERS:
        kxq0, kxq1, zeros, exceptions = struct.unpack_from("<ddII", data, 16)
        (estimate,) = struct.unpack_from("<d", data, 8)
        numbers = all(0 <= number < 2**62 for number in (kxq0, kxq1, estimate))
        registers = data[40:]
        fits = len(registers) == 1 << LG_K and max(registers) < 64 and zeros <= 1 << LG_K
        return bool(ints == 10 and count == 0 and exceptions == 0 and numbers and fits)
    if mode == _LIST:
        return ints == 2 and lg_array <= 3 and count < 8 and _are_coupons(data[8:], count)
    if mode == _SET:
        (count,) = struct.unpack_from("<I", data, 8)
        fits = 5 <= lg_array <= LG_K - 3 and 4 * count <= 3 << lg_array
        return ints == 3 and fits and _are_coupons(data[12:], count)
    return False


def _are_coupons(data: bytes, count: int) -> bool:
    """Return whether bytes are distinct items of a small sketch: the number of a register, and its value."""
    return len(data) == 4 * count and len({0, *struct.unpack(f"<{count}I", data)}) == count + 1


def _is_kll(data: bytes) -> bool:
    ints, version, family, flags, *k, m, _ = data[:8]
    if family != _KLL or m != _LEAST_ITEMS or int.from_bytes(k, "little") != K or flags & ~0x07:
        return False
    if flags & 0x01:
        return (ints, version, len(data)) == (2, 1, 8)
    if (ints, version) == (2, 2):
        return len(data) == 16 and bool(flags & 0x04) and not np.isnan(struct.unpack_from("<d", data, 8)[0])
    if (ints, version) != (5, 1) or flags & 0x04:
        return False
    n, least_k, levels = _HEAD.unpack_from(data, 8)
    if not 1 <= levels <= _MOST_LEVELS or least_k != K:
        return False
    return _are_levels(data[20:], n, levels)


def _are_levels(data: bytes, n: int, levels: int) -> bool:
    """Return whether the items of each level are sorted and together account for all that were added."""
    starts = [*struct.unpack_from(f"<{levels}I", data), _capacity(levels)]
    sizes = [end - start for start, end in pairwise(starts)]
    if min(sizes) < 0 or sum(size << level for level, size in enumerate(sizes)) != n:
        return False
    low, high = _BOUNDS.unpack_from(data, 4 * levels)
    items = np.frombuffer(data, "<f8", offset=4 * levels + _BOUNDS.size)
    if len(items) != sum(sizes) or np.isnan(items).any() or not (low <= items.min() and items.max() <= high):
        return False
    begin = starts[0]
    return all((np.diff(items[at - begin : end - begin]) >= 0).all() for at, end in pairwise(starts[1:]))


def _capacity(levels: int) -> int:
    return sum(max(_LEAST_ITEMS, _items_at(levels - level - 1)) for level in range(levels))


def _items_at(depth: int) -> int:
    """Return the items of a level so far below the top: two thirds of the next, rounded as the library does."""
    if depth <= 30:
        return _two_thirds(K, depth)
    return _two_thirds(_two_thirds(K, depth // 2), depth - depth // 2)


def _two_thirds(k: int, times: int) -> int:
    found: int = ((k << 1 << times) // 3**times + 1) >> 1
    return found
