"""The exercises on changed code: a mapping over small states, and the same cells with Spark."""

from __future__ import annotations

import ast
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
import pytest
from notebooks.running import TUTORIALS

import streamstate as ss
from streamstate.tutorials import flights
from streamstate.tutorials.exercises import Answer, Construct, Worksheet, p07_changes
from streamstate.tutorials.staging import Arrivals, clear

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

[TO_SECONDS] = [item for item in p07_changes.EXERCISES if isinstance(item, Construct)]


def _said(sql: Any) -> str:
    return repr(TO_SECONDS.check(lambda: sql))


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        (
            "SELECT carrier AS airline FROM op0",
            "has the columns airline, sum, count, min, max, and this returns airline",
        ),
        ("SELECT airline FROM op0", 'Referenced column "airline" not found'),
        ("SELEC carrier FRO op0", "raised ValueError"),
        ("DROP VIEW op0", "this is no SELECT"),
        (12, "expected SQL as a text, not int"),
    ],
)
def test_what_is_no_mapping_is_named(sql: Any, said: str) -> None:
    """Before any number is compared."""
    assert said in _said(sql)


def test_a_mapping_may_be_written_in_other_words() -> None:
    """Its columns may have any order and case, and a common table expression before them."""
    sql = """
        WITH s AS (SELECT *, min * 60 AS least FROM op0)
        SELECT max(max) AS MAX, CAST(min(least) AS bigint) AS min, sum(60 * sum) AS sum, sum(count) AS count,
            carrier AS airline
        FROM s GROUP BY airline
    """
    assert _said(sql).startswith("✓")


def _cells(name: str) -> dict[str, str]:
    """The code of a notebook by the ids of its cells, without magics."""
    cells = nbformat.read(TUTORIALS / f"{name}.ipynb", as_version=4).cells
    code = {cell.id: cell.source.splitlines() for cell in cells if cell.cell_type == "code"}
    return {name: "\n".join(line for line in lines if line[:1] != "%") for name, lines in code.items()}


def _functions(source: str) -> str:
    return "\n".join(ast.unparse(node) for node in ast.parse(source).body if isinstance(node, ast.FunctionDef))


def _shown(source: str, names: dict[str, Any]) -> Any:
    """Run a cell, and return what its last expression gives."""
    *before, last = ast.parse(source).body
    assert isinstance(last, ast.Expr)
    exec(compile(ast.Module(before, []), "cell", "exec"), names)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names)


@pytest.mark.slow
def test_spark_gives_the_answers_of_the_notebook(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What starts, what means the same, and a migration with the mapping that equals its recomputation."""
    import pandas as pd
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F

    monkeypatch.setenv("STREAMSTATE_PROGRESS", str(tmp_path / "progress.json"))
    arrivals = Arrivals(
        flights.prepare(tmp_path / "flights", days_per_file=3, last=date(2013, 1, 9)), tmp_path / "arriving"
    )
    arrivals.next()
    departures, cells, shown = flights.flights(spark, tmp_path / "arriving"), _cells("07_change_the_code"), list[Any]()
    names: dict[str, Any] = {
        "Callable": Callable, "DataFrame": DataFrame, "F": F, "P07": Worksheet("p07_changes"), "clear": clear,
        "checked": Answer("right", ""), "departures": departures, "display": shown.append, "flights": flights,
        "folder": tmp_path, "pd": pd, "spark": spark, "ss": ss, "to_seconds": TO_SECONDS.solution,
    }  # fmt: skip
    exec(f"from functools import cache\n{cells['cell-03']}", names)
    checkpoint = tmp_path / "checkpoints" / "delays"
    ss.start(names["delays"], "delays", tmp_path / "store", checkpoint=checkpoint, trigger="available-now").wait()

    exec(cells["cell-04b"], names)
    names["P07"].predict("starts", {"rename", "filter", "order", "nearest"})
    names["P07"].predict("same", {"rename"})
    assert _shown(cells["cell-04h"], names).mark == "right"
    assert _shown(cells["cell-04i"], names).mark == "right"
    found = _shown(cells["cell-04j"], names)
    reasons = found.drop_duplicates("change").set_index("change")["kind"].to_dict()
    assert reasons == {
        "drop": "value_schema", "rename": "result", "filter": "condition", "order": "key_expression",
        "nearest": "value_expression",
    }  # fmt: skip

    arrivals.next()
    exec(_functions(cells["cell-10"]), names)
    exec(cells["cell-30b"], names)
    exec(cells["cell-30f"], names)
    [first_rows] = shown
    assert first_rows.columns[0] == "airline"
    assert len(first_rows) == 3
