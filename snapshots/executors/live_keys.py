"""How many keys of a large state table live: digests of 8 bytes a key in the driver, never the keys."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from streamstate.snapshots.change_log import DELETE, embedded, listed, rows_since
from streamstate.snapshots.delta.reading import TableVersion
from streamstate.snapshots.executors.reports import EpochReport
from streamstate.snapshots.key_counts import KeyCounts
from streamstate.snapshots.operators import CHANGE, EPOCH

_MEMORY, _BATCH = "512MB", 1_000_000


class LiveKeys:
    """The live keys of a table at an epoch; without a log it has none."""

    def __init__(self) -> None:
        self._counts = KeyCounts()

    @property
    def total(self) -> int:
        """How many keys live."""
        return self._counts.total

    @classmethod
    def from_log(cls, version: TableVersion, keys: Sequence[str], epoch: int, keyframe: int | None) -> LiveKeys:
        """Those at an epoch, from the change log since a keyframe (None: from its beginning)."""
        found = cls()
        digest = f"hash({listed(keys)})" if keys else "0::UBIGINT"
        with tempfile.TemporaryDirectory(prefix="streamstate-live-") as folder:
            database = embedded(temp_directory=folder, memory_limit=_MEMORY)
            database.register("log", rows_since(version, keyframe, epoch, [EPOCH, CHANGE, *keys]))
            live = database.sql(
                f"SELECT {digest} AS digest FROM log GROUP BY digest"
                f" HAVING arg_max({CHANGE}, {EPOCH}) <> '{DELETE}' ORDER BY digest"
            ).to_arrow_reader(_BATCH)
            for batch in live:
                digests = np.asarray(pa.Table.from_batches([batch])["digest"].to_numpy(), np.uint64)
                found._counts.put(digests, np.ones(len(digests), np.uint8))
            database.close()
        return found

    def advance(self, reports: Iterable[EpochReport]) -> int:
        """Take in what one epoch changed; returns how many keys live after it."""
        pieces = [*reports]
        puts = np.concatenate([_NONE, *(one.puts for one in pieces)])
        deletes = np.concatenate([_NONE, *(one.deletes for one in pieces)])
        digests, alive = np.concatenate([puts, deletes]), np.repeat([1, 0], [len(puts), len(deletes)])
        # Of two keys with one digest, which is one chance in 2⁶⁴ for any two, the one that lives counts.
        order = np.lexsort((alive, digests))
        ordered = digests[order]
        last = np.append(ordered[1:] != ordered[:-1], True)[: len(ordered)]
        self._counts.put(ordered[last], alive[order][last].astype(np.uint8))
        return self.total


_NONE = np.empty(0, np.uint64)
