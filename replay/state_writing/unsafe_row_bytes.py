"""Rows as the bytes that Spark's state stores hold, encoded by Spark's executors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamstate.errors import UnsupportedStateError

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

_PROBED = "named_struct('a', id, 'b', cast(id AS string), 'c', array(id, null))"


@dataclass(frozen=True)
class RowEncoder:
    """Encodes struct columns as ``UnsafeRow`` bytes.

    Spark has an expression that serializes an object with Kryo. A struct that comes out of an exchange is an
    ``UnsafeRow``, whose serialized form is a header of a fixed length, and then its bytes.
    """

    spark: SparkSession
    header: int
    """The length of the header, in bytes."""

    @classmethod
    def probed(cls, spark: SparkSession) -> RowEncoder:
        """Return an encoder that agrees with Spark's own bytes of a row.

        Raises:
            UnsupportedStateError: it does not: this version of Spark serializes rows in another way.
        """
        # From one partition: an exchange that reads several returns their rows in any order.
        rows = spark.range(0, 3, numPartitions=1).selectExpr(f"{_PROBED} AS row").repartition(1)
        collected: Any = rows._jdf.queryExecution().executedPlan().executeCollect()
        expected = [bytes(row.getStruct(0, 3).getBytes()) for row in collected]
        encoded = [
            bytes(row.encoded) for row in rows.select(_serialized(spark, rows["row"]).alias("encoded")).collect()
        ]
        headers = {len(whole) - len(end) for whole, end in zip(encoded, expected, strict=True)}
        agrees = all(whole.endswith(end) for whole, end in zip(encoded, expected, strict=True))
        if len(headers) != 1 or not agrees:
            raise UnsupportedStateError(
                f"Spark {spark.version} serializes rows in a form that is not known, so state cannot be written.\n"
                "Upgrade streamstate, or use another version of Spark."
            )
        return cls(spark, headers.pop())

    def encoded(self, row: Column) -> Column:
        """Return the bytes of a struct column that comes out of an exchange; null where the struct is null."""
        from pyspark.sql import functions as F

        whole = _serialized(self.spark, row)
        return F.when(row.isNotNull(), F.substring(whole, self.header + 1, 2**31 - 1 - self.header))


def _serialized(spark: SparkSession, row: Column) -> Column:
    from pyspark.sql import Column

    jvm: Any = spark._jvm
    utils = jvm.org.apache.spark.sql.classic.ExpressionUtils
    kryo = True
    serialize = jvm.org.apache.spark.sql.catalyst.expressions.objects.EncodeUsingSerializer
    return Column(utils.column(serialize(utils.expression(row._jc), kryo)))  # noqa: SLF001 - as PySpark's own
