"""Sums, counts and means of a weighted sample, with their errors, as native aggregates.

The sample is one of Poisson: each row is kept with a probability of its own, and its weight w is the probability's
inverse. Horvitz and Thompson's estimate of a sum is Σ w·x over the rows that were kept, and the estimate of its
variance Σ w·(w − 1)·x². That of a mean, which is a quotient of two such sums, follows by linearisation (Särndal,
Swensson and Wretman, "Model Assisted Survey Sampling", 1992).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column


def weighted_sum(column: str | Column, weight: str | Column = "w") -> Column:
    """Return an aggregate: the sum of a column before shedding, estimated from the rows that were kept.

    It is a struct of ``estimate`` and ``error``, one standard error. The sum is within 2.5 errors of the estimate in
    more than 95 of 100 cases, if the group has at least 100 sampled rows (1.96 errors would do for a normal
    distribution, but sums of few or of skewed values are not normal). With 30 rows, use 3 errors; with fewer, or if
    single values dominate, the error says little: keep such values whole. The error is 0 if no row could have been
    dropped. Nulls do not count; without other values both are null.

    The error takes rows as dropped independently. Rows with one id are kept or dropped together, so if ids repeat
    within a group, the estimate is still unbiased, but the error is too small: up to √m times for ids of m rows each.
    Aggregate by id first where that matters. Rows of an interval whose share is 0 have no part in either.

    Args:
        column: the values.
        weight: the weights, as :func:`streamstate.shed` makes them.

    Example:
        >>> from streamstate.shedding import weighted_sum
        >>> kept = ss.shed(flights, id=["user", "scheduled"], weight="w")
        >>> frame = kept.groupBy("carrier").agg(weighted_sum("delay").alias("delay"))
        >>> frame.schema["delay"].dataType.simpleString()
        'struct<estimate:double,error:double>'
    """
    from pyspark.sql import functions as F

    x, w = _double(column), _double(weight)
    return F.struct(F.sum(w * x).alias("estimate"), F.sqrt(F.sum(w * (w - 1) * x * x)).alias("error"))


def weighted_count(weight: str | Column = "w") -> Column:
    """Return an aggregate: the number of rows before shedding, as :func:`weighted_sum` of ones.

    Args:
        weight: the weights, as :func:`streamstate.shed` makes them. Null does not count.
    """
    from pyspark.sql import functions as F

    return weighted_sum(F.lit(1.0), weight)


def weighted_mean(column: str | Column, weight: str | Column = "w") -> Column:
    """Return an aggregate: the mean of a column before shedding, as a struct like that of :func:`weighted_sum`.

    The mean is a quotient of two estimates, so it has a bias, which is small beside the error if some 30 rows were
    kept. If all kept rows have one value, the error is 0. It is inexact for values whose mean is more than 10⁶ times
    their standard deviation: subtract a constant first.

    Args:
        column: the values. Nulls do not count.
        weight: the weights, as :func:`streamstate.shed` makes them.
    """
    from pyspark.sql import functions as F

    x = _double(column)
    w = F.when(x.isNotNull(), _double(weight))
    total = F.sum(w)
    mean = F.sum(w * x) / total
    squares = F.sum(w * (w - 1) * x * x) - 2 * mean * F.sum(w * (w - 1) * x) + mean * mean * F.sum(w * (w - 1))
    # Rounding may make it negative.
    error = F.sqrt(F.when(squares > 0, squares).otherwise(0.0)) / total
    return F.struct(mean.alias("estimate"), error.alias("error"))


def _double(column: str | Column) -> Column:
    from pyspark.sql import functions as F

    return (F.col(column) if isinstance(column, str) else column).cast("double")
