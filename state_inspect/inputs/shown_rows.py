"""The rows of an epoch's input as they are shown: the sources' own columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pandas as pd

from streamstate.state_inspect.suspects.suspect import Suspect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SOURCE = "_source"
"""The columns with a source's whole rows are called ``_source0``, ``_source1``, …"""
SHOWN = 200
"""How many rows are shown; all are counted."""


def source_rows(rows: DataFrame, *others: str) -> DataFrame:
    """The columns of the source if there is one, otherwise the rows as they came into the operator; then others."""
    sources = [name for name in rows.columns if name.startswith(SOURCE)]
    if len(sources) == 1:
        return rows.select(f"{sources[0]}.*", *others)
    return rows.drop(*sources)


def shown_rows(sides: Mapping[str, DataFrame]) -> pd.DataFrame:
    """The first rows of each side, with the side in ``side`` if there are two."""
    frames = [rows.limit(SHOWN).toPandas() for rows in sides.values()]
    if len(frames) == 1:
        return frames[0]
    for side, frame in zip(sides, frames, strict=True):
        frame.insert(0, "side", side)
    return pd.concat(frames, ignore_index=True)


def as_run_again(suspects: Sequence[Suspect]) -> str | None:
    """That rows may differ from those of the epoch, because something below the operator is nondeterministic."""
    if not suspects:
        return None
    found = ", ".join(dict.fromkeys(suspect.what for suspect in suspects))
    return f"In the epoch they may have been others: {found} may differ when run again. .nondeterministic says why."


def operator_number(table: str) -> int:
    """The number of the operator that a state table belongs to."""
    return int(table.removeprefix("op").partition("_")[0])
