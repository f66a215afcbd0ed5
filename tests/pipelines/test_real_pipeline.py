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


def configure(folder: Path, settings: dict[str, str]) -> None:
    """Add settings of Spark."""
    with (folder / "conf/spark-defaults.conf").open("a", encoding="utf-8") as file:
        file.writelines(f"{name} {value}\n" for name, value in settings.items())


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The folder of a pipeline with some input."""
    shutil.copytree(Path(__file__).parent / "shop", tmp_path, dirs_exist_ok=True)
    (tmp_path / "spark-pipeline.yml").write_text(_SPEC.format(folder=tmp_path.as_uri()))
    settings = {
        "spark.sql.warehouse.dir": f"{tmp_path}/warehouse",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
    }
    (tmp_path / "conf").mkdir()
    configure(tmp_path, settings)
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
    # The watermark ends a minute before the last row: two windows are open, and the key has expired.
    assert [store[name].live().table().count() for name in store] == [2, 0]


@pytest.mark.exhaustive
def test_a_full_refresh(project: Path) -> None:
    """A capture of the flow goes on with the next version."""
    place = f"jdbc:derby:{project}/metastore;create=true"  # a second run needs the tables of the first
    configure(
        project,
        {"spark.sql.catalogImplementation": "hive", "spark.hadoop.javax.jdo.option.ConnectionURL": place},
    )
    run(project)
    flow = project / "storage/_checkpoints/spark_catalog/default/seen/first"
    capture = ss.Checkpoint(flow).follow(project / "store")
    assert capture.wait(timeout=300) >= 0
    run(project, "--full-refresh", "seen")
    with capture._changed:
        assert capture._changed.wait_for(lambda: capture.name == "seen_first_v1", 60)
    assert capture.wait(timeout=300) >= 0
    capture.stop()
    store = ss.open_store(project / "store")
    assert store["seen_first"].versions() == store.queries() == ["seen_first", "seen_first_v1"]
