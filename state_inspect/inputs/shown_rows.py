"""The rows of an epoch's input as they are shown: the sources' own columns."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import pandas as pd

from streamstate.state_inspect.frames import to_pandas
from streamstate.state_inspect.inputs.kafka_records import with_text
from streamstate.state_inspect.suspects.suspect import Suspect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SOURCE = "_source"
"""The columns with a source's whole rows are called ``_source0``, ``_source1``, …"""
LATENESS = "_late_by"
"""The interval by which the watermark was past a row; a window's end counts."""
SHOWN = 200
"""The number of rows that are shown; all are counted."""


def source_rows(rows: DataFrame, *others: str) -> DataFrame:
    """Return the source's columns if there is one source, else the operator's input; then other columns."""
    sources = [name for name in rows.columns if name.startswith(SOURCE)]
    if len(sources) == 1:
        return rows.select(f"{sources[0]}.*", *others)
    return rows.drop(*sources)


def fetched_frame(rows: DataFrame) -> pd.DataFrame:
    """Return the rows of a DataFrame of Spark as a frame of pandas: Kafka's as text, other values as they are."""
    from streamstate.snapshots.spark.fetching import fetched  # needs Spark

    return with_text(to_pandas(fetched(rows)))


class InputOfEpoch(Protocol):
    """The input of a query's operators in an epoch, which lives as long as its rows."""

    @property
    def notes(self) -> list[str]:
        """Sentences about what the sources delivered."""

    def bound(self) -> AbstractContextManager[None]:
        """Within the block, what Spark runs sees the versions of shared variables that the epoch saw."""


class InputSides:
    """Rows of an epoch's input by side of an operator: some are shown, and all are counted."""

    sides: Mapping[str, DataFrame]
    nondeterministic: tuple[Suspect, ...]
    _keep: InputOfEpoch | None

    def bound(self) -> AbstractContextManager[None]:
        """Within the block, operators that run again see the versions of shared variables that the epoch saw.

        Needed only for frames of ``sides`` whose query reads shared variables in Python code.
        """
        return nullcontext() if self._keep is None else self._keep.bound()

    def count(self) -> int:
        """Return the number of rows."""
        return sum(self.counts.values())

    @cached_property
    def counts(self) -> Mapping[str, int]:
        """The number of rows of each side."""
        # Fewer than could be shown are all that there are.
        shown = {side: len(frame) for side, frame in self.shown.items()}
        with self.bound():
            return {side: count if count < SHOWN else self.sides[side].count() for side, count in shown.items()}

    @cached_property
    def shown(self) -> Mapping[str, pd.DataFrame]:
        """The first 200 rows of each side, in the source's columns; Kafka's keys and values as text where possible."""
        with self.bound():
            return {side: fetched_frame(source_rows(rows).limit(SHOWN)) for side, rows in self.sides.items()}

    @cached_property
    def rows(self) -> pd.DataFrame:
        """The rows that are shown, with the side in ``side`` for a join.

        If rows of several sources are among them, the rows as they came into the operator.
        """
        if len(self.shown) == 1:
            return next(iter(self.shown.values()))
        names = list(dict.fromkeys(name for frame in self.shown.values() for name in frame))
        # What only the other side has is missing, and changes no type.
        missing: Any = pd.NA
        frames = [frame.reindex(columns=names, fill_value=missing) for frame in self.shown.values()]
        for side, frame in zip(self.shown, frames, strict=True):
            frame.insert(0, "side", side)
        return pd.concat(frames, ignore_index=True)

    @property
    def may_differ(self) -> str:
        """A sentence on what may give other rows when it runs again; empty if nothing does."""
        found = ", ".join(dict.fromkeys(suspect.what for suspect in self.nondeterministic))
        return f"{found} may differ when run again" if found else ""

    def _notes(self) -> list[str]:
        """Lines about rows that are not shown, and about what may make them others than in the epoch."""
        notes = []
        if (missing := self.count() - len(self.rows)) > 0:
            notes.append(f"… and {missing:,} more rows; .sides has all of them as DataFrames.")
        if self.may_differ:
            notes.append(f"In the epoch they may have been others: {self.may_differ}. .nondeterministic says why.")
        return notes + ([] if self._keep is None else self._keep.notes)


class LateSides(InputSides):
    """Late rows by side of an operator, with ``_late_by``."""

    @cached_property
    def shown(self) -> Mapping[str, pd.DataFrame]:
        """The latest 200 rows of each side, in the source's columns, with ``_late_by``."""
        from pyspark.sql import functions as F

        latest = {side: rows.orderBy(F.col(LATENESS).desc()) for side, rows in self.sides.items()}
        with self.bound():
            return {side: fetched_frame(source_rows(rows, LATENESS).limit(SHOWN)) for side, rows in latest.items()}
