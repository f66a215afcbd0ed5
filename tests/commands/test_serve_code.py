"""``streamstate serve --code``: the code of a query, with which its owner sees the input behind changes."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from synthetic import write

import streamstate as ss
from streamstate.command_line import parser
from streamstate.command_line.serve import plan_queries
from streamstate.errors import InvalidArgumentError, QueryError, UnknownQueryError
from streamstate.snapshots.store.query_plans import plan_table
from streamstate.snapshots.store.query_plans.plan_table import Plans

CODE = """from pyspark.sql import SparkSession

def rows():
    spark = SparkSession.builder.getOrCreate()
    return spark.readStream.schema("k string, v long").parquet({folder!r})

def build():
    return rows().groupBy("k").count()

def other():
    return rows().groupBy("k", "v").count()
"""


@pytest.fixture
def code(tmp_path: Path) -> str:
    """A file with the code of a query."""
    (tmp_path / "input").mkdir()
    (tmp_path / "served_code.py").write_text(CODE.format(folder=str(tmp_path / "input")))
    return str(tmp_path / "served_code.py")


def codes(*options: str) -> list[tuple[str | None, str, str]]:
    """The parsed values of ``--code``."""
    given: argparse.Namespace = parser().parse_args(["serve", "store", *options])
    return list(given.code)


def test_code_may_be_named_after_its_query(capsys: pytest.CaptureFixture[str]) -> None:
    """Several may be given; a path may contain an equals sign only before the query's name."""
    assert codes() == []
    assert codes("--code", "jobs.delays:build") == [(None, "jobs.delays", "build")]
    several = codes("--code", "a=jobs.py:a", "--code", "b=jobs.py:b")
    assert several == [("a", "jobs.py", "a"), ("b", "jobs.py", "b")]
    with pytest.raises(SystemExit):
        codes("--code", "delays=jobs")
    assert "expected MODULE:FUNCTION" in capsys.readouterr().err


def test_the_code_plans_the_query_in_this_process(
    spark: SparkSession, code: str, counted: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And writes nothing into the store, which may be read-only."""
    monkeypatch.setattr(plan_table, "_planned", {})
    store = ss.open_store(counted[1])
    before = sorted(path for path in counted[1].rglob("*") if path.is_file())
    plan_queries(store, [(None, code, "build")])
    planned = plan_table.live_plan(store.layout, "counts", None)
    assert planned is not None
    assert planned.plan.mode == "update"
    assert Plans(store.layout, "counts").recorded() == ()
    assert sorted(path for path in counted[1].rglob("*") if path.is_file()) == before


def test_wrong_code_is_refused_before_the_page_is_served(spark: SparkSession, code: str, tmp_path: Path) -> None:
    """The errors list the queries."""
    path = tmp_path / "store"
    write(path, [{"a": 1}])
    write(path, [{"a": 1}], query="r")
    store = ss.open_store(path)
    with pytest.raises(InvalidArgumentError, match=r"several queries: q, r[\s\S]*--code QUERY="):
        plan_queries(store, [(None, code, "build")])
    with pytest.raises(UnknownQueryError, match="q, r"):
        plan_queries(store, [("s", code, "build")])
    with pytest.raises(InvalidArgumentError, match="has no function nothing"):
        plan_queries(store, [("q", code, "nothing")])
    with pytest.raises(QueryError, match="is not the query q"):
        plan_queries(store, [("q", code, "other")])
