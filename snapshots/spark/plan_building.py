"""Constructions of Spark's plans and expressions, and the frames and columns of Python over them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

from streamstate.snapshots.spark.catalyst import each, scala_list
from streamstate.snapshots.spark.private_classes import has_class, new, scala_object, spark_class

if TYPE_CHECKING:
    from pyspark.sql import Column

_EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions."
_PLANS = "org.apache.spark.sql.catalyst.plans.logical."
_EXPRESSION_UTILS = "org.apache.spark.sql.classic.ExpressionUtils"


def java_output_mode(jvm: Any, mode: str) -> Any:
    """Return Spark's own object for an output mode."""
    return getattr(jvm.org.apache.spark.sql.streaming.OutputMode, mode.capitalize())()


def dataset_of(jvm: Any, session: Any, plan: Any) -> Any:
    """Return Spark's own frame of an analysed plan; ``session`` is Spark's own, too."""
    return scala_object(jvm, "org.apache.spark.sql.classic.Dataset").ofRows(session, plan)


def plan_of_rows(session: Any, rows: Any, schema: Any, *, streaming: bool) -> Any:
    """Return the plan of an RDD of Spark's internal rows; ``session`` is Spark's own."""
    return session.internalCreateDataFrame(rows, schema, streaming).queryExecution().analyzed()


def column_of(jvm: Any, expression: Any) -> Column:
    """Return a column for a Catalyst expression."""
    from pyspark.sql import Column

    if has_class(jvm, _EXPRESSION_UTILS):
        return Column(spark_class(jvm, _EXPRESSION_UTILS).column(expression))
    return Column(jvm.org.apache.spark.sql.Column(expression))  # before Spark 4.0


def expression_of(jvm: Any, column: Column) -> Any:
    """Return the Catalyst expression of a column."""
    java: Any = column._jc  # noqa: SLF001 (as PySpark's own)
    return spark_class(jvm, _EXPRESSION_UTILS).expression(java)


def renamed(jvm: Any, plan: Any, output: Iterable[Any], *, metadata_of: Literal["plan", "output"] = "plan") -> Any:
    """Return a plan with the names and numbers of other attributes, which the nodes above refer to."""
    return project(jvm, aliases(jvm, each(plan.output()), output, metadata_of=metadata_of), plan)


def aliases(
    jvm: Any, columns: Iterable[Any], output: Iterable[Any], *, metadata_of: Literal["plan", "output"] = "plan"
) -> list[Any]:
    """Return the attributes of a plan under the names and numbers of others."""
    return [
        alias(jvm, made, to.name(), to.exprId(), (made if metadata_of == "plan" else to).metadata())
        for made, to in zip(columns, output, strict=True)
    ]


def alias(jvm: Any, expression: Any, name: str, number: Any = None, metadata: Any = None) -> Any:
    """Return a named expression, with a new number and the metadata of the expression unless others are given."""
    nothing = scala_list(jvm, [])
    number = number or scala_object(jvm, f"{_EXPRESSIONS}NamedExpression").newExprId()
    make = jvm.org.apache.spark.sql.catalyst.expressions.Alias
    return make(expression, name, number, nothing, jvm.scala.Option.apply(metadata), nothing)


def project(jvm: Any, columns: Iterable[Any], plan: Any) -> Any:
    """Return a projection of a plan."""
    return jvm.org.apache.spark.sql.catalyst.plans.logical.Project(scala_list(jvm, columns), plan)


def expand(jvm: Any, projections: Iterable[Iterable[Any]], output: Iterable[Any], plan: Any) -> Any:
    """Return a plan with several rows for each row of another."""
    rows = scala_list(jvm, [scala_list(jvm, columns) for columns in projections])
    return jvm.org.apache.spark.sql.catalyst.plans.logical.Expand(rows, scala_list(jvm, output), plan)


def union(jvm: Any, plans: Iterable[Any]) -> Any:
    """Return the rows of several plans, whose columns are in the same order."""
    by_name, missing = False, False
    return jvm.org.apache.spark.sql.catalyst.plans.logical.Union(scala_list(jvm, plans), by_name, missing)


def struct_of(jvm: Any, columns: Iterable[Any]) -> Any:
    """Return an expression with some attributes as one struct."""
    return scala_object(jvm, f"{_EXPRESSIONS}CreateStruct").create(scala_list(jvm, columns))


def null_of(jvm: Any, kind: Any) -> Any:
    """Return the null of a type."""
    return jvm.org.apache.spark.sql.catalyst.expressions.Literal(None, kind)


def no_rows(jvm: Any, output: Any, *, streaming: bool) -> Any:
    """Return a plan with some attributes and no rows."""
    name = f"{_PLANS}LocalRelation"
    rows = getattr(scala_object(jvm, name), "$lessinit$greater$default$2")()
    return new(jvm, name, output, rows, streaming)
