"""Digests of keys: what capture remembers of the keys that live, instead of the keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamstate.snapshots.change_log import embedded, listed, quoted

# How many bytes of a SHA-256 are kept.
_WIDTH = 16


class KeyDigests:
    """Digests the key columns of rows; equal keys, NULL being equal to NULL, have equal digests.

    Args:
        keys: the key columns; their types may be anything that DuckDB can group by.
        exact: False: 64 bits, quick. Of n keys some two share a digest with a chance of about n²/2⁶⁵, which is one
            in 400,000 for 10 million keys. True: 128 bits of a cryptographic hash, for uses that must never take one
            key for another (n²/2¹²⁹: as unlikely as that SHA-256 fails a file's checksum).
    """

    def __init__(self, keys: Sequence[str], *, exact: bool = False) -> None:
        self._keys = [*keys]
        self._exact = exact
        self._db = embedded()

    @property
    def dtype(self) -> str:
        """NumPy's name of the digests' type."""
        return f"S{_WIDTH}" if self._exact else "uint64"

    def of(self, rows: pa.Table) -> npt.NDArray[Any]:
        """The digest of each row's key, in the rows' order."""
        self._db.register("rows", rows.select(self._keys))
        try:
            if not self._exact:
                return np.asarray(self._db.sql(f"SELECT hash({listed(self._keys)}) AS d FROM rows").fetchnumpy()["d"])
            # A sort key is DuckDB's own encoding of values of any type as bytes: two are the same if the values are.
            sort_key = ", ".join(f"{quoted(key)}, 'ASC NULLS LAST'" for key in self._keys)
            found = self._db.sql(f"SELECT unhex(sha256(create_sort_key({sort_key})))[1:{_WIDTH}] AS d FROM rows")
            return _as_bytes(found.to_arrow_table()["d"])
        finally:
            self._db.unregister("rows")


def _as_bytes(digests: pa.ChunkedArray) -> npt.NDArray[np.bytes_]:
    width = pa.binary(_WIDTH)
    flat = pa.concat_arrays(digests.cast(width).chunks) if digests.num_chunks else pa.array([], width)
    return np.frombuffer(flat.buffers()[1] or b"", f"S{_WIDTH}", len(flat), flat.offset * _WIDTH)
