"""Rewriting the state of a checkpoint into another one, on Spark's executors, with Spark's own ``StateRewriter``.

Spark uses it for offline repartitioning. It reads every row of every store of an operator as bytes, passes the frame
to a function, and writes the frame that it returns as the state of an epoch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from streamstate.errors import StateWriteError, UnsupportedStateError, first_line
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.legacy_operators import described_view
from streamstate.snapshots.checkpoint.state_tables import LIMIT, listed_stores
from streamstate.snapshots.spark.connect import errors_of_spark
from streamstate.snapshots.spark.escaped_paths import path_for_reader
from streamstate.snapshots.spark.failures import innermost
from streamstate.snapshots.spark.state_reader import StateReader
from streamstate.snapshots.spark.state_rewriting import rewritten, serialized

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

PARTITION_KEY = "partition_key"
"""The column of a store's rows that determines the partition of each; the others are bytes."""

RewriteFunction = Callable[["RewritableOperator", str, "DataFrame"], "DataFrame"]
"""Maps the rows of an operator's store, whose name it is given too, to the new ones: columns ``partition_key``,
``key_bytes``, ``value_bytes`` and ``column_family_name``, in and out; the partitions of the frame become those of the
state."""
_PROBED = "named_struct('a', id, 'b', cast(id AS string), 'c', array(id, null))"


@dataclass(frozen=True)
class RewritableOperator:
    """A stateful operator whose state can be rewritten."""

    number: int
    """Spark's id of it in the query."""
    name: str
    """Spark's name of its kind."""
    stores: tuple[str, ...]
    single_partition: bool
    """Whether it always works in a single partition, as a limit and an aggregation without keys do."""


@dataclass
class StateRewriter:
    """Rewrites the state of one committed epoch of a checkpoint, which is only read."""

    spark: SparkSession
    original: CheckpointFiles
    epoch: int

    def __post_init__(self) -> None:
        """Open a separate session, with the settings that the query is pinned to."""
        self.session = StateReader(self.spark, self.original).session(self.epoch)
        undescribed = self.original.legacy_operators()
        if not all(operator.certain for operator in undescribed):
            raise UnsupportedStateError(
                f"The state of {self.original.path} cannot be rewritten: the Spark version that wrote it left no"
                " metadata of its operators, and the files alone do not identify them.\nFork without partitions= and"
                " edit=. Step that fork once, then fork it again."
            )
        self._path = (
            described_view(self.session, self.original.path, undescribed)
            if undescribed
            else path_for_reader(self.session, self.original.path)
        )

    def operators(self) -> list[RewritableOperator]:
        """Return the operators with state."""
        stores: dict[tuple[int, str], list[str]] = {}
        for store in listed_stores(self.session, self.original, self.epoch):
            stores.setdefault((store.operator, store.kind), []).append(store.name)
        return [self._operator(number, name, tuple(names)) for (number, name), names in stores.items()]

    def _operator(self, number: int, name: str, stores: tuple[str, ...]) -> RewritableOperator:
        if name == LIMIT:
            return RewritableOperator(number, name, stores, single_partition=True)
        kind = self.rows(number, name, stores[0]).schema[PARTITION_KEY].dataType
        return RewritableOperator(number, name, stores, single_partition=not getattr(kind, "fields", True))

    def rows(self, number: int, name: str, store: str) -> DataFrame:
        """Return all rows of a store: ``partition_key``, ``key_bytes``, ``value_bytes``, ``column_family_name``."""
        options = {"operatorId": str(number), "storeName": store, "batchId": str(self.epoch)}
        reader = self.session.read.format("statestore").options(**options)
        try:
            return reader.option("_readAllColumnFamilies", "true").load(self._path)
        except PySparkException as error:
            raise _not_rewritable(self.original.path, number, name, error) from error
        except Exception as error:
            # Some of Spark's errors reach Python as errors of py4j.
            if not hasattr(error, "java_exception"):
                raise
            raise _not_rewritable(self.original.path, number, name, error) from error

    def run(
        self, target: str, operators: list[RewritableOperator], function: RewriteFunction
    ) -> dict[str, list[list[str]]]:
        """Write the state at the epoch into another checkpoint, as the state of the same epoch.

        The target must have this epoch's offsets, and the metadata and schemas of exactly these operators. Returns the
        unique ids of the written files by operator, partition and store, as the commit log holds them in checkpoint
        format 2; empty in format 1.
        """
        context: Any = self.session.sparkContext
        from pyspark.java_gateway import ensure_callback_server_started

        start: Any = ensure_callback_server_started
        start(context._gateway)  # noqa: SLF001 - as PySpark's own foreachBatch does
        scala_function = _ScalaFunction(self.session, {operator.number: operator for operator in operators}, function)
        paths = self._path, path_for_reader(self.session, target)
        try:
            return _state_ids(rewritten(self.session, self.epoch, paths, scala_function))
        except Exception as error:
            # An error of the Python function comes back as an error of py4j, without its class.
            with writing_state():
                raise (scala_function.error or error) from error


@contextmanager
def writing_state() -> Iterator[None]:
    """Name the reason if Spark cannot write state.

    Raises:
        StateWriteError: it cannot.
    """
    try:
        yield
    except errors_of_spark() as error:
        raise StateWriteError(f"The state cannot be written: {reason(error)}") from error


def reason(error: Exception) -> str:
    """Return the message of the error that a task raised."""
    text = str(error)
    found = re.search(r"\[USER_RAISED_EXCEPTION\] ([^\n]*?)(?: SQLSTATE|\n|$)", text)
    return found[1] if found else innermost(error)


class _ScalaFunction:
    """A Python function of a frame as a Scala function; Spark calls it in the driver."""

    def __init__(
        self, session: SparkSession, operators: Mapping[int, RewritableOperator], function: RewriteFunction
    ) -> None:
        self._session, self._operators, self._function = session, operators, function
        self.error: BaseException | None = None

    def apply(self, java: Any) -> Any:
        """Return the new rows for a frame of rows."""
        try:
            # The options of the read say which operator it is.
            options = java.queryExecution().analyzed().options()
            operator = self._operators[int(options.get("operatorId"))]
            store = options.get("storeName") or "default"
            return self._function(operator, store, DataFrame(java, self._session))._jdf
        except BaseException as error:
            self.error = error
            raise

    class Java:
        """The interface that py4j implements with this class."""

        implements = ("scala.Function1",)


def _state_ids(found: Any) -> dict[str, list[list[str]]]:
    """Return the ids of each partition's stores, by operator, from Spark's map."""
    ids: dict[str, list[list[str]]] = {}
    if found.isDefined():
        entries = found.get().iterator()
        while entries.hasNext():
            entry = entries.next()
            operator, partitions = entry._1(), entry._2()  # noqa: SLF001 - the parts of a Scala pair
            ids[str(operator)] = [[str(store_id) for store_id in stores] for stores in partitions]
    return ids


def _not_rewritable(checkpoint: str, number: int, name: str, error: Exception) -> UnsupportedStateError:
    if "UNSUPPORTED_PROVIDER" in str(error):
        return UnsupportedStateError(
            f"Spark cannot rewrite the state of {checkpoint}: it can only rewrite RocksDB state stores.\n"
            "Fork without partitions= and edit=. To change the state, start the query from scratch with\n"
            "spark.sql.streaming.stateStore.providerClass="
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider."
        )
    return UnsupportedStateError(
        f"Spark cannot rewrite the state of operator {number} ({name}) of {checkpoint}: {first_line(error)}\n"
        "Fork without partitions= and edit=."
    )


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
        encoded = [bytes(row.encoded) for row in rows.select(serialized(spark, rows["row"]).alias("encoded")).collect()]
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

        whole = serialized(self.spark, row)
        return F.when(row.isNotNull(), F.substring(whole, self.header + 1, 2**31 - 1 - self.header))
