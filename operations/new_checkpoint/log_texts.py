"""The offset and commit logs of a new checkpoint."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from streamstate.snapshots.checkpoint.copying import as_json

_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


@dataclass(frozen=True)
class EpochLog:
    """The log entries of an epoch.

    Args:
        epoch: its number.
        offsets: the end offset of each source: by name, or in the query's order.
        watermark: the watermark in force during it, in milliseconds since 1970; 0 without one.
        next_watermark: the watermark that the next epoch begins with.
        began_at: its processing time, in milliseconds since 1970.
        conf: the settings that the query is pinned to.
        version: the version of the offset log, ``v1`` or ``v2``.
        format_version: the checkpoint format of the state stores, ``1`` or ``2``.
    """

    epoch: int
    offsets: Mapping[str, str | None] | list[str | None]
    watermark: int = 0
    next_watermark: int = 0
    began_at: int = 0
    conf: Mapping[str, str] = field(default_factory=dict)
    version: str = "v1"
    format_version: str = "2"

    def texts(self) -> dict[str, str]:
        """Return the files by path. The state is in RocksDB, whatever store the query had: Spark can write no other."""
        head = {
            "batchWatermarkMs": self.watermark,
            "batchTimestampMs": self.began_at,
            "conf": {**self.conf, _PROVIDER: _ROCKSDB},
        }
        planned = "\n".join([self.version, as_json(head), *self._lines()])
        # Spark also asks for the offsets of the epoch before, which must not look committed.
        offsets = {f"offsets/{epoch}": planned for epoch in (self.epoch - 1, self.epoch) if epoch >= 0}
        commit = {"nextBatchWatermarkMs": self.next_watermark}
        return {
            "metadata": json.dumps({"id": str(uuid.uuid4())}),
            **offsets,
            f"commits/{self.epoch}": f"v{self.format_version}\n{as_json(commit)}",
        }

    def _lines(self) -> list[str]:
        named = self.offsets if isinstance(self.offsets, Mapping) else dict(enumerate(self.offsets))
        texts = {source: "-" if offset is None else offset for source, offset in named.items()}
        if self.version == "v1":
            return [*texts.values()]
        return [f"{source}:{offset}" for source, offset in texts.items() if offset != "-"]


def offset_text(offset: Any) -> str | None:
    """Return a source's offset as text: parsed JSON is written again, text is returned unchanged."""
    return offset if offset is None or isinstance(offset, str) else as_json(offset)


def milliseconds(moment: datetime | None) -> int:
    """Return a moment in milliseconds since 1970; 0 for None, as Spark writes it."""
    return 0 if moment is None else round(moment.timestamp() * 1000)
