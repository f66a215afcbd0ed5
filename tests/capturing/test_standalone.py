"""Large captures on a Spark standalone cluster with a master and two workers, each in a separate process."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil
import pyarrow as pa
import pyspark
import pytest
from conftest import Source, run
from oracle import compare
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import streamstate as ss
from capturing.test_cluster import committed, data_files

pytestmark = pytest.mark.slow

# Captures on the cluster, and prints the number of executors: the processes with block managers, except the driver.
PROGRAM = """
import json, sys
import streamstate as ss
spark = ss.session(**json.loads(sys.argv[1]))
for checkpoint, store in json.loads(sys.argv[2]):
    ss.Checkpoint(checkpoint).capture(store, "q", spark=spark)
print(spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1)
spark.stop()
"""
SMALL_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class Cluster:
    """A running master and its workers."""

    def __init__(self, url: str, workers: list[subprocess.Popen[str]]) -> None:
        self.url = url
        self.workers = workers

    def start_capture(self, pairs: list[tuple[Path, Path]], **settings: str) -> subprocess.Popen[str]:
        """Capture checkpoints to stores, in a process with a session on the cluster."""
        conf = {
            "spark.master": self.url,
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": SMALL_JVM,
            "spark.driver.memory": "512m",
            "spark.driver.extraJavaOptions": SMALL_JVM,
            # Tasks wait until both workers have an executor.
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
            "spark.sql.shuffle.partitions": "2",
            **settings,
        }
        stores = json.dumps([[str(path) for path in pair] for pair in pairs])
        command = [sys.executable, "-c", PROGRAM, json.dumps(conf), stores]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def executors(self) -> list[psutil.Process]:
        """The processes of the executors."""
        return [child for worker in self.workers for child in psutil.Process(worker.pid).children()]


def finished(capture: subprocess.Popen[str]) -> int:
    """Wait for a capture; returns the number of executors."""
    out, err = capture.communicate(timeout=600)
    assert capture.returncode == 0, "\n".join(line for line in err.splitlines() if not line.startswith("\tat"))[-6000:]
    return int(out.split()[-1])


def free_port() -> int:
    """An unused port."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return int(unused.getsockname()[1])


def daemon(kind: str, *arguments: str, folder: Path, until: str) -> subprocess.Popen[str]:
    """Start a process of the cluster, and wait until it logs that it is ready."""
    home = Path(pyspark.__path__[0])
    environment = os.environ | {
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": SMALL_JVM,
        "PYSPARK_PYTHON": sys.executable,
    }
    command = [str(home / "bin/spark-class"), f"org.apache.spark.deploy.{kind}", "--host", "127.0.0.1", *arguments]
    started = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    assert started.stderr is not None
    lines = []
    for line in started.stderr:
        lines.append(line)
        if until in line:
            # Keep reading its output, so that it never blocks on a full pipe.
            threading.Thread(target=started.stderr.read, daemon=True).start()
            return started
    raise AssertionError("".join(lines[-20:]))


def kill(process: subprocess.Popen[str]) -> None:
    """Kill a process and its children."""
    with suppress(psutil.NoSuchProcess):
        for child in psutil.Process(process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                child.kill()
    process.kill()
    process.wait()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with one core and one GiB per worker, which is stopped after the tests."""
    folder = tmp_path_factory.mktemp("cluster")
    (folder / "local").mkdir()
    with ExitStack() as running:
        port = str(free_port())
        no_web_ui = ("--webui-port", "0")
        master = daemon("master.Master", "--port", port, *no_web_ui, folder=folder, until="I have been elected leader")
        running.callback(kill, master)
        url, workers = f"spark://127.0.0.1:{port}", []
        for number in range(2):
            limits = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"work{number}"))
            worker = daemon("worker.Worker", *no_web_ui, *limits, url, folder=folder, until="Successfully registered")
            running.callback(kill, worker)
            workers.append(worker)
        yield Cluster(url, workers)


def sums(source: Source) -> DataFrame:
    """A query with one row per key."""
    return source.stream().groupBy("k").agg(F.sum("v").alias("s"))


@pytest.mark.exhaustive
def test_a_capture_on_a_cluster(spark: SparkSession, source: Source, cluster: Cluster, tmp_path: Path) -> None:
    """Every epoch equals Spark's reader, and two executors have written the files.

    The pass is estimated as small, but exceeds ``spark.driver.maxResultSize``, so that executors write the files.
    """
    for epoch in range(2):
        keys = [f"{'x' * 200}{number}" for number in range(1000 * epoch, 1000 * epoch + 8000)]
        source.add({"k": keys, "v": [epoch] * len(keys)})
    run(sums(source), tmp_path / "c")
    capture = cluster.start_capture([(tmp_path / "c", tmp_path / "s")], **{"spark.driver.maxResultSize": "1m"})
    try:
        assert finished(capture) == 2
    finally:
        kill(capture)
    assert compare(spark, tmp_path / "c", ss.open_store(tmp_path / "s")["q"]) == 2
    assert len(committed(tmp_path / "s/q/op0")) > 1  # the driver would have written one file
    assert data_files(tmp_path / "s/q/op0") == committed(tmp_path / "s/q/op0")


@pytest.mark.exhaustive
def test_a_killed_executor_does_not_duplicate_rows(
    spark: SparkSession, source: Source, cluster: Cluster, tmp_path: Path
) -> None:
    """Its task runs again on another executor, and its unfinished file is swept."""
    keys = [f"k{number:07}" for number in range(400_000)]
    source.add({"k": keys, "v": [*range(len(keys))]})
    run(sums(source), tmp_path / "c")
    settings = {"spark.streamstate.rowsInDriver": "0", "spark.sql.execution.arrow.maxRecordsPerBatch": "1000"}
    capture = cluster.start_capture([(tmp_path / "c", tmp_path / "s")], **settings)
    try:
        unfinished = kill_writing_executor(cluster, capture)
        assert unfinished.exists()
        finished(capture)
    finally:
        kill(capture)
    assert not unfinished.exists()
    assert data_files(tmp_path / "s/q/op0") == committed(tmp_path / "s/q/op0")
    table = ss.open_store(tmp_path / "s")["q"].live().table()
    expected = spark.read.format("statestore").load(str(tmp_path / "c")).select("key.k", "value.sum").toArrow()
    assert sorted_by_key(table.to_arrow()) == sorted_by_key(expected)
    assert table.count() == len(keys)


def kill_writing_executor(cluster: Cluster, capture: subprocess.Popen[str]) -> Path:
    """Kill an executor that has a data file open, with its Python workers; returns the file."""
    while True:
        assert capture.poll() is None, "the capture ended before an executor could be killed"
        for executor in cluster.executors():
            with suppress(psutil.NoSuchProcess):
                workers = executor.children(recursive=True)
                opened = [file.path for worker in workers for file in worker.open_files()]
                unfinished = [path for path in opened if "/.unfinished-" in path]
                if unfinished:
                    for process in (executor, *workers):
                        process.kill()
                    return Path(unfinished[0])


def sorted_by_key(rows: pa.Table) -> list[list[object]]:
    """The columns of the rows in the order of the keys."""
    return [column.to_pylist() for column in rows.sort_by("k").columns]
