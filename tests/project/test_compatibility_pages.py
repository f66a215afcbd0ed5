"""The pages that `make test-versions` writes are those of this code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts.compatibility import (
    BEGIN,
    CAPABILITIES,
    END,
    INTERFACES,
    PARTS,
    TESTS,
    capabilities,
    capability_table,
    used,
)
from scripts.private_interfaces import Interfaces, interfaces


@pytest.mark.slow
def test_every_interface_is_on_the_page() -> None:
    """Each with the modules that use it. `make test-versions` and `python -m scripts.compatibility` write the page."""
    page = INTERFACES.read_text(encoding="utf-8")
    listed = re.findall(r"^\| (`[^|]+`) \| (`[^|]+`) \|", page, re.MULTILINE)
    uses = (interfaces().classes, interfaces().attributes)
    assert listed == [row for kind in uses for _, row in used(kind)]


def test_every_capability_is_in_the_table() -> None:
    """The table has the labels of the tests."""
    table = CAPABILITIES.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    listed = {line.split(" | ")[0].removeprefix("| ") for line in table.splitlines() if line.startswith("| ")}
    assert listed - {"Spark", "---", "**Java**", "**Scala**"} == {*capabilities()}
    assert {f"test_{part}.py" for part in (*PARTS, "interfaces")} == {path.name for path in TESTS.glob("test_*.py")}


def test_classes_and_attributes_are_found(tmp_path: Path) -> None:
    """Chains of attributes, texts that are put together, and packages in variables; not what is said in passing."""
    (tmp_path / "used.py").write_text(
        '''
"""Text about org.apache.spark.sql.Nothing."""
from pyspark.sql import SparkSession
_PLANS = "org.apache.spark.sql.catalyst.plans."
def f(spark):
    expressions = spark._jvm.org.apache.spark.sql.catalyst.expressions
    expressions.Alias(1), spark._jvm.org.apache.spark.sql.Column, _PLANS + "Join", f"{_PLANS}Filter$"
''',
        encoding="utf-8",
    )
    found = Interfaces.of({"used": tmp_path / "used.py"})
    names = {"sql.catalyst.expressions.Alias", "sql.Column", "sql.catalyst.plans.Join", "sql.catalyst.plans.Filter"}
    assert found.classes.keys() == {f"org.apache.spark.{name}" for name in names}
    assert found.attributes.keys() == {"_jvm"}


def test_refusals_are_said_once() -> None:
    """A cell says from which version on; the sentence stands below, without the version that refused."""
    refused = {"`ss.start`": "Writing needs Spark 4.2 or later; this is Spark 4.1.4."}
    found = {
        spark: {"environment": {"java": "17", "scala": "2.13"}, "capabilities": given, "interfaces": {}}
        for spark, given in (("4.3.0", {"`ss.start`": "yes"}), ("4.1.4", refused), ("4.0.5", refused), ("3.5.8", {}))
    }
    table = capability_table(found)
    assert "| `ss.start` | yes | from 4.2 on | from 4.2 on | not tested |" in table
    assert table.count("- Writing needs Spark 4.2 or later.") == 1
