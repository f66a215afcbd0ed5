"""The keys on which most input rows of an epoch fall, counted from the sources again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import Observation
from pyspark.sql import functions as F

from streamstate.snapshots.checkpoint.state_tables import operator_number
from streamstate.state_inspect.captured_query import CapturedQuery
from streamstate.state_inspect.inputs.epoch_input import EpochInput

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MOST_ROWS = 1_000_000


@dataclass(frozen=True)
class HeavyInput:
    """A key with many input rows in an epoch.

    Attributes:
        key: its columns, by the names of the state table, with their values.
        share: its share of the operator's input rows, from 0 to 1.
    """

    key: Mapping[str, Any]
    share: float

    @property
    def name(self) -> str:
        """The key as text, such as ``carrier='ORD', day=3``."""
        return ", ".join(f"{column}={value!r}" for column, value in self.key.items())


def heavy_inputs(query: CapturedQuery, epoch: int, n: int = 3, *, rows: int | None = None) -> list[HeavyInput]:
    """Return the keys of the lowest stateful operator on which most input rows of an epoch fall, heaviest first.

    Args:
        query: the query.
        epoch: the epoch.
        n: how many keys.
        rows: how many rows the epoch read, if that is known; of more than a million, a sample is counted.

    Raises:
        NoResultError: the query's plan is not known in this process.
        NotReplayableError: the input is gone.
    """
    came = EpochInput(query, epoch)
    table = next((name for name in query.tables() if operator_number(name) == came.lowest), None)
    names = [] if table is None else query.columns(table).key_columns
    found: list[HeavyInput] = []
    for side in came.of(came.lowest):
        total = Observation()
        keyed = came.keys_of(side, _sampled(side.rows, rows)).select(F.struct("*").alias("key"))
        counted = keyed.groupBy("key").count()
        keys = counted.observe(total, F.sum("count").alias("rows"))
        with came.bound():
            top = keys.orderBy(F.desc("count")).limit(n).collect()
        for row in top:
            key = dict(zip(names or row["key"].__fields__, row["key"], strict=False))
            found.append(HeavyInput(key, row["count"] / total.get["rows"]))
    return sorted(found, key=lambda key: -key.share)[:n]


def _sampled(frame: DataFrame, rows: int | None) -> DataFrame:
    return frame.sample(fraction=_MOST_ROWS / rows) if rows is not None and rows > _MOST_ROWS else frame
