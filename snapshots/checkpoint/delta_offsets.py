"""Offsets of Delta's source: how far a query has read the commits of a table.

A query reads the table's files as of one version first, its snapshot, then the files that each later commit added. The
source numbers the files of the snapshot, and of each commit, from 0. An offset before the first file of a commit means
that all earlier commits were read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

VERSION, FILE = "version", "file"


def is_delta(offset: Any) -> bool:
    """Return whether a parsed offset is of Delta's source, which names the table's id."""
    return isinstance(offset, dict) and "reservoirId" in offset and isinstance(offset.get("reservoirVersion"), int)


@dataclass(frozen=True)
class DeltaOffset:
    """An offset of Delta's source."""

    table: str
    """The table's id."""
    version: int
    index: int
    """The number of the last file that was read; negative before the first."""
    in_snapshot: bool
    """True if the file belongs to the snapshot with which the query began."""

    @classmethod
    def of(cls, offset: Mapping[str, Any]) -> DeltaOffset:
        """Return a parsed offset for which :func:`is_delta` holds."""
        index = offset.get("index")
        in_snapshot = bool(offset.get("isStartingVersion"))
        return cls(offset["reservoirId"], offset["reservoirVersion"], -1 if index is None else index, in_snapshot)

    @property
    def position(self) -> tuple[int, float]:
        """The version of the last file that was read and its number, infinite for all files of the version."""
        return (self.version, self.index) if self.index >= 0 else (self.version - 1, math.inf)

    @property
    def limit(self) -> dict[str, int]:
        """The same as ``at(offset=…)`` takes it."""
        version, file = self.position
        return {VERSION: version} if math.isinf(file) else {VERSION: version, FILE: self.index}

    def __str__(self) -> str:
        version, file = self.position
        if version < 0:
            return "nothing read yet"
        if math.isinf(file):
            return f"table version {version}"
        return f"{'snapshot of ' * self.in_snapshot}table version {version}, file {file}"


def is_table_version(limit: Any) -> bool:
    """Return whether an offset that a caller gave is ``{"version": 17}``, perhaps with ``"file"``."""
    return isinstance(limit, dict) and VERSION in limit and limit.keys() <= {VERSION, FILE}
