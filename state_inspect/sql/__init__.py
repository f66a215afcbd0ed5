"""SQL over state: time travel becomes a filter on the temporal index, and reading is all that is allowed.

``delays`` (where there is one state table) and ``delays.op0_left`` are relations, and so are their ``.history`` and
``.changes``. ``VERSION AS OF 12`` and ``TIMESTAMP AS OF '…'`` (the SQL:2011 spellings that Delta and Iceberg use)
choose an epoch for one relation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from streamstate.snapshots.errors import InvalidArgumentError
from streamstate.state_inspect.sql.duckdb_engine import DuckDBEngine
from streamstate.state_inspect.sql.names import Names, Travel, bind, read_in_duckdb, read_in_spark
from streamstate.state_inspect.sql.result import Result
from streamstate.state_inspect.sql.scopes import relations
from streamstate.state_inspect.sql.statement import Parameters, parsed, read
from streamstate.state_inspect.sql.user_data import is_frame, user_data

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streamstate.state_inspect.temporal_index.index import Index

__all__ = [
    "EngineName",
    "Names",
    "Parameters",
    "Result",
    "Travel",
    "is_frame",
    "run",
    "tables_named",
    "user_data",
]

EngineName = Literal["duckdb", "spark"]


def run(
    sql: str,
    index: Index,
    names: Names,
    params: Parameters = None,
    *,
    engine: EngineName = "duckdb",
    spark: SparkSession | None = None,
) -> Result:
    """Make a statement ready to be run.

    Args:
        sql: one statement that reads.
        index: where the state tables are.
        names: what it can name.
        params: values for its ``?`` or ``$name``.
        engine: what runs it.
        spark: the session for Spark; by default the one in use.

    Raises:
        InvalidSQLError: where it does not parse, does more than read, or cannot be made sense of.
        UnknownNameError: where a relation, column or epoch does not exist.
        SessionError: where Spark is to run it and there is no session.
    """
    if engine not in ("duckdb", "spark"):
        raise InvalidArgumentError(f"engine={engine!r} cannot be meant: 'duckdb', which is embedded, or 'spark'.")
    statement = parsed(sql, params)
    if engine == "spark":
        from streamstate.state_inspect.sql.sessions import session_in_use
        from streamstate.state_inspect.sql.spark_engine import SparkEngine

        session = session_in_use(spark)
        in_spark = bind(statement, names, read_in_spark)
        return Result(SparkEngine(session, in_spark), in_spark.epochs)
    bound = bind(statement, names, read_in_duckdb)
    return Result(DuckDBEngine(index, bound), bound.epochs)


def tables_named(sql: str) -> list[str]:
    """The names without dots that a statement reads from, as it spells them; what its WITH defines is not among them.

    Raises:
        InvalidSQLError: where it does not parse.

    Example:
        >>> tables_named("WITH x AS (FROM delays) SELECT * FROM x JOIN airports ON true")
        ['airports', 'delays']
    """
    return sorted({table.name for table in relations(read(sql)) if table.name and not table.db})
