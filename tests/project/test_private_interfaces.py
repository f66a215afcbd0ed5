"""Spark's private interfaces: one room calls them, and what is missing in a version is named."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import streamstate
from scripts.house import ROOMS
from streamstate.errors import SparkVersionError
from streamstate.operations.code_check.spark_verdict import is_verdict
from streamstate.snapshots.spark.private_classes import java_class, new, private_calls

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROOT = Path(streamstate.__file__).parents[1]
_SPARK = "org.apache.spark."
# Text that names classes and calls none: values of settings and what files hold.
_TEXTS = {
    "operations/new_checkpoint/log_texts.py",  # the provider, a value of a setting
    "replay/repartition.py",  # the same, in a message
    "replay/state_writing/state_rewriter.py",  # the same, in a message
    "snapshots/checkpoint/decoding/state_schema.py",  # the package of encoders that schema files name
}


def _named(tree: ast.AST) -> Iterator[str]:
    """Names of Spark's classes in a module: as text, or as attributes of the JVM."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _SPARK in node.value:
            yield node.value
        elif isinstance(node, ast.Attribute) and f".{_SPARK}" in f"{ast.unparse(node)}.":
            yield ast.unparse(node)


def test_only_the_room_names_private_classes() -> None:
    """A call into Spark's private interfaces is in ``snapshots/spark/``, behind a function named for what it gives."""
    modules = {path.relative_to(_ROOT).as_posix(): path for room in ROOMS for path in (_ROOT / room).rglob("*.py")}
    naming = {
        name
        for name, path in modules.items()
        if not name.startswith("snapshots/spark/") and [*_named(ast.parse(path.read_text(encoding="utf-8")))]
    }
    assert naming == _TEXTS


def test_a_missing_class_is_named(spark: SparkSession) -> None:
    """The message names the class and the version, and asks for a report."""
    with pytest.raises(SparkVersionError, match=rf"Spark {spark.version} has no org\.apache\.spark\.sql\.Absent,"):
        java_class(spark._jvm, "org.apache.spark.sql.Absent")


def test_a_missing_method_is_named(spark: SparkSession) -> None:
    """Other errors stay as they are."""
    with pytest.raises(SparkVersionError, match=r"has no absent\(\[\]\), which") as caught, private_calls(spark):
        spark._jsparkSession.absent()
    assert "report" in str(caught.value)
    with pytest.raises(TypeError, match="mine"), private_calls(spark):
        raise TypeError("mine")


def test_a_class_is_found_where_an_older_spark_has_it(spark: SparkSession) -> None:
    """Its constructor takes as many of the arguments as it has parameters, and its own defaults for the others."""
    name = "org.apache.spark.sql.execution.streaming.runtime.SerializedOffset"
    assert str(new(spark._jvm, name, "1", "one more").json()) == "1"


def test_only_spark_decides_on_code(spark: SparkSession) -> None:
    """A failure on the way to Spark's verdict is no verdict."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import AnalysisException, PySparkException

    jvm = spark._jvm
    assert jvm is not None
    with pytest.raises(Py4JJavaError) as failed:
        jvm.java.util.Objects.requireNonNull(None)
    assert not is_verdict(failed.value)
    with pytest.raises(AnalysisException) as refused:
        spark.range(1).select("absent")
    assert is_verdict(refused.value)
    assert not is_verdict(PySparkException("Python worker failed to connect back."))
