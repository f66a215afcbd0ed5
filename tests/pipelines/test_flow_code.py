"""The code of a flow, from the file of its pipeline: for ``check``, ``why``, ``inputs``, forks and steps."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from conftest import Source
from pyspark.sql import SparkSession

import streamstate as ss
from streamstate.command_line.program import main
from streamstate.errors import InvalidArgumentError

ZONE = "spark.sql.session.timeZone"
PIPELINE = """
from pyspark import pipelines as dp
from pyspark.sql import functions as F


def events():
    return spark.readStream.schema("k string, v long").option("maxFilesPerTrigger", 1).parquet("{folder}")


@dp.temporary_view
def doubled():
    return spark.readStream.table("positive").withColumn("v", F.col("v") * {factor})


@dp.temporary_view
def positive():
    return events().where("v > 0")


@dp.table
def distinct_rows():
    return spark.readStream.table("doubled").dropDuplicates(["k"])


dp.create_streaming_table("seen")


@dp.append_flow(target="seen", name="first", spark_conf={{"spark.sql.session.timeZone": "Asia/Tokyo"}})
def some_function():
    return events().dropDuplicates({keys})


@dp.materialized_view
def totals():
    return spark.read.table("distinct_rows").groupBy("k").count()
"""


def written(path: Path, folder: Path, factor: int = 2, keys: str = '["k"]') -> Path:
    """The file of a pipeline."""
    path.write_text(PIPELINE.format(folder=folder, factor=factor, keys=keys))
    return path


@pytest.fixture
def flow(spark: SparkSession, tmp_path: Path) -> Path:
    """The checkpoint of a flow, as a run of its pipeline leaves it; the file is ``shop.py`` beside its storage."""
    source = Source(spark, tmp_path / "in", "k string, v long")
    for epoch in range(3):
        source.add({"k": ["a", f"b{epoch}"], "v": [epoch + 1, -1]})
    file = written(tmp_path / "shop.py", source.folder)
    checkpoint = tmp_path / "storage/_checkpoints/spark_catalog/default/seen/first/0"
    writer = ss.pipeline_flow(file, "first")().writeStream.format("noop").outputMode("append")
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    return checkpoint


def test_questions_and_forks_of_a_flow(flow: Path, tmp_path: Path) -> None:
    """Its file serves as its code, although importing it fails outside of a run of the pipeline."""
    build = pickle.loads(pickle.dumps(ss.pipeline_flow(tmp_path / "shop.py", "first")))
    checkpoint = ss.Checkpoint(flow)
    assert checkpoint.check(build, mode="append").ok
    assert checkpoint.capture(tmp_path / "store").query == "seen_first"
    history = ss.open_store(tmp_path / "store")["seen_first"]
    history.describe(build, mode="append")
    assert sorted(row["k"] for row in history.inputs(2).collect()) == ["a", "b2"]
    assert len(history.why(0, k="a").rows) == 1
    fork = checkpoint.fork(tmp_path / "fork", at=1)
    assert [run.epoch for run in fork.step(build, mode="append").epochs] == [2]


def test_the_settings_of_a_flow(spark: SparkSession, flow: Path, tmp_path: Path) -> None:
    """The session has them while the flow is built, and while a fork starts; its own afterwards."""
    own = spark.conf.get(ZONE)
    file = tmp_path / "shop.py"
    zones = f'.withColumn("built", F.lit(spark.conf.get("{ZONE}"))).withColumn("ran", F.expr("current_timezone()"))'
    file.write_text(
        file.read_text().replace('dropDuplicates(["k"])\n\n\n@dp.mat', f'dropDuplicates(["k"]){zones}\n\n\n@dp.mat')
    )
    fork = ss.Checkpoint(flow).fork(tmp_path / "fork", at=1)
    fork.step(ss.pipeline_flow(file, "first"), mode="append", sink=f"parquet:{tmp_path / 'out'}")
    [row] = spark.read.parquet(str(tmp_path / "out" / "epoch=2")).select("built", "ran").distinct().collect()
    assert (row.built, row.ran, spark.conf.get(ZONE)) == ("Asia/Tokyo", "Asia/Tokyo", own)
    assert own != "Asia/Tokyo"


def test_a_flow_reads_the_views_of_its_file(spark: SparkSession, flow: Path, tmp_path: Path) -> None:
    """In whatever order they are defined; what the code reads is what it is now."""
    frame = ss.pipeline_flow(tmp_path / "shop.py", "distinct_rows")()
    assert frame.isStreaming
    assert frame.columns == ["k", "v"]
    file = tmp_path / "shop.py"
    file.write_text(file.read_text().replace("v > 0", "v > 17"))
    changed = ss.pipeline_flow(file, "distinct_rows")()
    assert "17" in str(changed._jdf.queryExecution().analyzed())
    for name in ("doubled", "positive"):
        spark.catalog.dropTempView(name)


def test_a_changed_flow_is_refused(flow: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By the command, which takes the file and the flow."""
    code = f"{tmp_path / 'shop.py'}:first"
    assert main(["check", str(flow), code, "--mode", "append"]) == 0
    written(tmp_path / "shop.py", tmp_path / "in", keys='["k", "v"]')
    capsys.readouterr()
    assert main(["check", str(flow), code, "--mode", "append"]) == 1
    assert "refused" in capsys.readouterr().out
    assert main(["check", str(flow), f"{tmp_path / 'shop.py'}:none"]) == 1
    assert "defines no flow 'none'.\nIts flows: distinct_rows, doubled, first" in capsys.readouterr().err
    assert main(["check", str(flow), f"{tmp_path / 'shop.py'}:totals"]) == 1


def test_a_file_is_needed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """SQL files have no code to run."""
    (tmp_path / "shop.sql").write_text("CREATE STREAMING TABLE t AS SELECT 1")
    with pytest.raises(InvalidArgumentError, match="expected a Python file of a pipeline"):
        ss.pipeline_flow(tmp_path / "none.py", "t")
    with pytest.raises(InvalidArgumentError, match=r'return spark.sql\("SELECT … FROM STREAM …"\)'):
        ss.pipeline_flow(tmp_path / "shop.sql", "t")
    assert main(["check", str(tmp_path / "cp"), f"{tmp_path / 'shop.sql'}:t"]) == 1
    assert "only a run of the pipeline can read flows of SQL files" in capsys.readouterr().err
