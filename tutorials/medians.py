"""The exact median delay of each carrier: a stateful processor whose state is large where the carrier is.

Spark's Python workers run it and import it by name, so it has a module to itself that imports little.
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

__all__ = ["OUTPUT", "Medians", "median_of", "medians"]

OUTPUT = "carrier string, departures long, median double"
"""What the query emits: each carrier that departed, with the median so far."""


def medians(
    spark: SparkSession, data: str | os.PathLike[str], *, files: int = 1, until: int | None = None
) -> DataFrame:
    """Departures and their median delay per carrier; run it in update mode.

    Arguments as for :func:`streamstate.tutorials.flights.flights`. Its state is skewed on purpose: a map per carrier,
    with a row for each delay that its departures ever had.
    """
    from streamstate.tutorials.flights import flights

    departures = flights(spark, data, files=files, until=until).where("dep_delay IS NOT NULL")
    return (
        departures.select("carrier", "dep_delay")
        .groupBy("carrier")
        .transformWithStateInPandas(Medians(), outputStructType=OUTPUT, outputMode="update", timeMode="none")
    )


class Medians(StatefulProcessor):
    """Keeps for each carrier how many departures had which delay, which is all that a median can be asked for."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state; Spark calls this once for each task."""
        self._delays = handle.getMapState("delays", "delay double", "flights long")

    def handleInputRows(self, key: tuple[Any, ...], rows: Iterator[Any], timerValues: Any) -> Iterator[pd.DataFrame]:
        """Take in one epoch's departures of a carrier, and emit its median.

        Counts do not depend on the order in which rows reach a task, so the same input gives the same state.
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
    """The median of numbers of which each is there so many times.

    Example:
        >>> median_of({-3.0: 2, 10.0: 1, 11.0: 1})
        3.5
    """
    numbers = sorted(counts)
    upto = list(accumulate(counts[number] for number in numbers))
    middle = ((upto[-1] - 1) // 2, upto[-1] // 2)
    low, high = (next(number for number, end in zip(numbers, upto, strict=True) if place < end) for place in middle)
    return (low + high) / 2
