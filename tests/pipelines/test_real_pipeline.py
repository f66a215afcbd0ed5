"""A pipeline that Spark runs, with a full refresh."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import streamstate as ss

pytestmark = pytest.mark.slow

_SPEC = """
name: shop
storage: {folder}/storage
libraries:
  - glob:
      include: transformations.py
"""


def run(folder: Path, *arguments: str) -> None:
    """Run the pipeline as ``spark-pipelines run`` does, and wait for it."""
    script = Path(sys.executable).with_name("spark-pipelines")
    environment = {**os.environ, "SPARK_CONF_DIR": str(folder / "conf"), "PYSPARK_PYTHON": sys.executable}
    environment["PATH"] = f"{script.parent}{os.pathsep}{environment['PATH']}"
    command = [str(script), "run", *arguments]
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The folder of a pipeline with some input. Its tables stay in the catalog, as a second run needs."""
    shutil.copytree(Path(__file__).parent / "shop", tmp_path, dirs_exist_ok=True)
    (tmp_path / "spark-pipeline.yml").write_text(_SPEC.format(folder=tmp_path.as_uri()))
    settings = {
        "spark.sql.catalogImplementation": "hive",
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:{tmp_path}/metastore;create=true",
        "spark.sql.warehouse.dir": f"{tmp_path}/warehouse",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
    }
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    (tmp_path / "in").mkdir()
    rows = [{"k": "a", "v": n, "at": f"2026-01-01 00:0{n}:00"} for n in range(3)]
    (tmp_path / "in/0.json").write_text("\n".join(map(json.dumps, rows)))
    return tmp_path


def test_the_flows_of_a_pipeline(project: Path) -> None:
    """Their checkpoints are found under the names of tables and flows, and captured."""
    run(project)
    found = ss.checkpoints(project / "storage")
    assert [checkpoint.name for checkpoint in found] == ["per_minute", "seen_first"]
    assert found.overview()["stateful"].all()
    for checkpoint in found:
        checkpoint.capture(project / "store")
    store = ss.open_store(project / "store")
    assert [store[name].live().table().count() for name in store] == [1, 1]


@pytest.mark.exhaustive
def test_a_full_refresh(project: Path) -> None:
    """A capture of the flow goes on with the next version."""
    run(project)
    flow = project / "storage/_checkpoints/spark_catalog/default/seen/first"
    capture = ss.Checkpoint(flow).follow(project / "store")
    assert capture.wait(timeout=60) >= 0
    run(project, "--full-refresh", "seen")
    with capture._changed:
        assert capture._changed.wait_for(lambda: capture.name == "seen_first_v1", 60)
    assert capture.wait(timeout=60) >= 0
    capture.stop()
    store = ss.open_store(project / "store")
    assert store["seen_first"].versions() == store.queries() == ["seen_first", "seen_first_v1"]
