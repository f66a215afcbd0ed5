"""The exact median delay of each carrier: a stateful processor with much state for large carriers.

Spark's Python workers import the processor by name, so it has a module of its own with few imports.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession

OUTPUT = "carrier string, departures long, median double"
"""What the query emits: each carrier with departures in the epoch, and its median so far."""


def medians(
    spark: SparkSession, data: str | os.PathLike[str], *, files: int = 1, until: int | None = None
) -> DataFrame:
    """Departures and their median delay per carrier, for update mode.

    The arguments are those of :func:`streamstate.tutorials.flights.flights`. The state is skewed on purpose: each
    carrier has a map with a row for every delay that its departures ever had.
    """
    from streamstate.tutorials.flights import flights

    departures = flights(spark, data, files=files, until=until).where("dep_delay IS NOT NULL")
    return (
        departures.select("carrier", "dep_delay")
        .groupBy("carrier")
        .transformWithStateInPandas(Medians(), outputStructType=OUTPUT, outputMode="update", timeMode="none")
    )


class Medians(StatefulProcessor):
    """Counts the departures of each carrier by delay, which is all that a median needs."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state; Spark calls this once per task."""
        self._delays = handle.getMapState("delays", "delay double", "flights long")

    def handleInputRows(self, key: tuple[Any, ...], rows: Iterator[Any], timerValues: Any) -> Iterator[pd.DataFrame]:
        """Add an epoch's departures of a carrier, and emit its median.

        Counts do not depend on the order of rows, so the same input gives the same state.
        """
        import pandas as pd

        known = {delay: flights for (delay,), (flights,) in self._delays.iterator()}
        new = Counter(float(delay) for frame in rows for delay in frame["dep_delay"])
        for delay, flights in new.items():
            known[delay] = known.get(delay, 0) + flights
            self._delays.updateValue((delay,), (known[delay],))
        values = (key[0], sum(known.values()), median_of(known))
        yield pd.DataFrame([values], columns=["carrier", "departures", "median"])


def median_of(counts: Mapping[float, int]) -> float:
    """The median of numbers, given how often each occurs.

    Example:
        >>> median_of({-3.0: 2, 10.0: 1, 11.0: 1})
        3.5
    """
    numbers = sorted(counts)
    upto = list(accumulate(counts[number] for number in numbers))
    middle = ((upto[-1] - 1) // 2, upto[-1] // 2)
    low, high = (next(number for number, end in zip(numbers, upto, strict=True) if place < end) for place in middle)
    return (low + high) / 2
