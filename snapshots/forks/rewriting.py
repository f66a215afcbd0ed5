"""Writing the state of a checkpoint anew, into another one: on Spark's executors, by Spark's own rewriter of state.

Spark has it for offline repartitioning. It reads every row of every store of an operator as bytes, hands the frame to
a function, and writes what that gives back as the state of an epoch. The class is private to Spark: all that touches
it is in this module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamstate.snapshots.checkpoint import Checkpoint
from streamstate.snapshots.errors import UnsupportedStateError
from streamstate.snapshots.operators import listed_stores
from streamstate.snapshots.state_reader import StateReader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["KEY", "Change", "Operator", "Rewriter"]

KEY = "partition_key"
"""The column of a store's rows that says which partition each belongs to; the others are bytes."""
_LIMIT = "globalLimit"

Change = Callable[["Operator", "DataFrame"], "DataFrame"]
"""What becomes of the rows of an operator's store: columns ``partition_key``, ``key_bytes``, ``value_bytes`` and
``column_family_name``, in and out; the frame's partitions are those of the state."""


@dataclass(frozen=True)
class Operator:
    """A stateful operator, as far as rewriting asks."""

    number: int
    """Spark's id of it in the query."""
    name: str
    """Spark's name of what it does."""
    stores: tuple[str, ...]
    single: bool
    """Whether it works in one partition however many there are, as a limit and an aggregation without keys do."""


@dataclass
class Rewriter:
    """Rewrites the state of one epoch of a checkpoint.

    Args:
        spark: its executors do the work.
        original: what is read; it stays as it is.
        epoch: a committed epoch of it.
    """

    spark: SparkSession
    original: Checkpoint
    epoch: int

    def __post_init__(self) -> None:
        """Take a session of its own, with the settings that the query is pinned to."""
        self.session = StateReader(self.spark, self.original).session(self.epoch)

    def operators(self) -> list[Operator]:
        """The operators whose state there is.

        Raises:
            UnsupportedStateError: where Spark cannot write the state of one of them anew.
        """
        stores: dict[tuple[int, str], list[str]] = {}
        for row in listed_stores(self.session, self.original.path, self.epoch):
            stores.setdefault((row["operatorId"], row["operatorName"]), []).append(row["stateStoreName"])
        return [self._operator(number, name, tuple(each)) for (number, name), each in stores.items()]

    def _operator(self, number: int, name: str, stores: tuple[str, ...]) -> Operator:
        if name == _LIMIT:
            return Operator(number, name, stores, single=True)
        kind = self._rows(number, name, stores[0]).schema[KEY].dataType
        return Operator(number, name, stores, single=not getattr(kind, "fields", True))

    def rows(self, operator: Operator, store: str) -> DataFrame:
        """All rows of a store: ``partition_key``, ``key_bytes``, ``value_bytes``, ``column_family_name``.

        Raises:
            UnsupportedStateError: where Spark has no such form of it.
        """
        return self._rows(operator.number, operator.name, store)

    def _rows(self, number: int, name: str, store: str) -> DataFrame:
        from pyspark.errors import PySparkException

        options = {"operatorId": str(number), "storeName": store, "batchId": str(self.epoch)}
        reader = self.session.read.format("statestore").options(**options)
        try:
            return reader.option("_readAllColumnFamilies", "true").load(self.original.path)
        except PySparkException as error:
            raise _not_rewritable(self.original.path, number, name, error) from error
        except Exception as error:
            # Some of Spark's errors reach Python as the gateway's own.
            if not hasattr(error, "java_exception"):
                raise
            raise _not_rewritable(self.original.path, number, name, error) from error

    def run(self, target: str, operators: list[Operator], change: Change) -> dict[str, list[list[str]]]:
        """Write the state at the epoch into another checkpoint, as that of the same epoch.

        Args:
            target: a checkpoint with this epoch's offsets and the metadata and schemas of exactly those operators.
            operators: those whose state is written.
            change: what becomes of the rows of each of their stores.

        Returns:
            The unique ids of the files that were written, by operator, partition and store, as the commit log has
            them in checkpoint format 2; nothing in format 1.
        """
        from pyspark.java_gateway import ensure_callback_server_started

        jvm: Any = self.session._jvm
        context: Any = self.session.sparkContext
        start: Any = ensure_callback_server_started
        start(context._gateway)  # noqa: SLF001 - as PySpark's own foreachBatch does
        java: Any = self.session._jsparkSession
        hadoop = java.sessionState().newHadoopConf()
        resolve = jvm.org.apache.spark.sql.execution.streaming.utils.StreamingUtils.resolvedCheckpointLocation
        function = _Function(self.session, {one.number: one for one in operators}, change)
        rewriter = jvm.org.apache.spark.sql.execution.streaming.state.StateRewriter(
            java,
            self.epoch,
            self.epoch,
            resolve(hadoop, target),
            hadoop,
            jvm.scala.Some(resolve(hadoop, self.original.path)),
            jvm.scala.Some(function),
            jvm.scala.Option.empty(),
        )
        try:
            return _ids(rewriter.run())
        except Exception as error:
            # What the function raised comes back as an error of the gateway, without its class.
            raise (function.error or error) from error


class _Function:
    """A Python function of a frame as the function that Spark asks for; it is called in the driver."""

    def __init__(self, session: SparkSession, operators: Mapping[int, Operator], change: Change) -> None:
        self._session, self._operators, self._change = session, operators, change
        self.error: BaseException | None = None

    def apply(self, java: Any) -> Any:
        """What becomes of a frame."""
        from pyspark.sql import DataFrame

        try:
            # What is to be read says whose state it is.
            options = java.queryExecution().analyzed().options()
            operator = self._operators[int(options.get("operatorId"))]
            return self._change(operator, DataFrame(java, self._session))._jdf
        except BaseException as error:
            self.error = error
            raise

    class Java:
        """What py4j has to know."""

        implements = ("scala.Function1",)


def _ids(found: Any) -> dict[str, list[list[str]]]:
    """Spark's map from operators to the ids of each partition's stores."""
    ids: dict[str, list[list[str]]] = {}
    if found.isDefined():
        entries = found.get().iterator()
        while entries.hasNext():
            entry = entries.next()
            operator, partitions = entry._1(), entry._2()  # noqa: SLF001 - the parts of a Scala pair
            ids[str(operator)] = [[str(one) for one in stores] for stores in partitions]
    return ids


def _not_rewritable(checkpoint: str, number: int, name: str, error: Exception) -> UnsupportedStateError:
    told = str(getattr(error, "java_exception", error))
    if "UNSUPPORTED_PROVIDER" in told:
        return UnsupportedStateError(
            f"The state of {checkpoint} is kept by a provider that Spark cannot write state of: it can for RocksDB's.\n"
            "A plain fork works (without partitions= and edit=). To change the state, start the query anew with\n"
            "spark.sql.streaming.stateStore.providerClass="
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider."
        )
    return UnsupportedStateError(
        f"Spark cannot write the state of operator {number} ({name}) of {checkpoint} anew: {told.splitlines()[0]}\n"
        "A plain fork works (without partitions= and edit=)."
    )
