"""Functions called in a notebook: their progress, and interrupts that end them within seconds."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
from notebook_kernel import Kernel, kernel  # noqa: F401 (a fixture)

pytestmark = pytest.mark.slow

WITHIN = 30.0
"""Seconds; two on an idle machine."""

SETUP = """
import streamstate as ss
from pyspark.sql import functions as F
spark = ss.session(**{{"spark.driver.memory": "1g", "spark.ui.enabled": "false"}})

def build(wait=0):
    def slow(v):
        import time
        time.sleep(wait)
        return v

    letters = spark.readStream.schema("k string, v long").option("maxFilesPerTrigger", 1).parquet({folder!r})
    figures = F.count("*").alias("n"), F.avg("v").alias("mean"), F.max("v").alias("most")
    return letters.withColumn("v", F.udf(slow, "long")("v")).groupBy("k").agg(*figures)
"""
LEFT = "[f for f in __import__('os').listdir(folder) if 'unfinished' in f or 'audit' in f]"


@pytest.fixture
def notebook(kernel: Kernel, counted: tuple[Path, Path], tmp_path: Path) -> Kernel:
    """The kernel without the extension, with a query's code and Spark."""
    kernel.works("%unload_ext streamstate")
    kernel.works(f"import tempfile; folder = tempfile.tempdir = {str(tmp_path)!r}")
    kernel.works(f"checkpoint, store = {str(counted[0])!r}, {str(counted[1])!r}")
    kernel.works(SETUP.format(folder=str(counted[0].parent / "input")))
    return kernel


def test_a_long_call_shows_a_bar_and_leaves_a_line(notebook: Kernel) -> None:
    """The extension does not have to be loaded."""
    result = notebook.works("audit = ss.Checkpoint(checkpoint).audit(build, replays=1)")
    bars = [text for text in map(_html, result.messages) if "<progress" in text]
    # Not every message is drawn: a bar is drawn again only after a pause.
    assert any(re.search(r"Replay \d of 2: epoch \d", bar) for bar in bars)
    (line,) = result.outputs()
    assert line["text/plain"].startswith("audit took ")
    assert result.printed == ""


def test_an_interrupted_audit_ends_within_seconds(notebook: Kernel) -> None:
    """Two lines, no job, no query and no folder remain, and the next call works."""
    began: list[float] = []

    def replays(message: dict[str, Any]) -> bool:
        if "Replay 1" in _html(message) and "00:03" in _html(message):
            began.append(time.monotonic())
        return bool(began)

    result = notebook.run("ss.Checkpoint(checkpoint).audit(lambda: build(100))", when=replays)
    seconds = time.monotonic() - began[0]
    assert result.traceback == "KeyboardInterrupt: The query is unchanged, and the replays were deleted."
    assert [output["text/plain"] for output in result.outputs()] == ["Interrupted. Replay 1 of 3: epoch 0"]
    assert result.printed == ""
    assert seconds < WITHIN
    assert notebook.value("len(spark.streams.active)") == "0"
    assert notebook.value("list(spark.sparkContext.statusTracker().getActiveJobsIds())") == "[]"
    assert notebook.value(LEFT) == "[]"
    assert notebook.value("ss.Checkpoint(checkpoint).check(build).ok") == "True"


def test_an_interrupted_restore_makes_no_checkpoint(notebook: Kernel) -> None:
    """Nor does the folder remain in which it was being made."""

    def writes(message: dict[str, Any]) -> bool:
        return "writing the state" in _html(message)

    result = notebook.run("ss.open_store(store)['counts'].live().restore(to=f'{folder}/restored')", when=writes)
    assert result.traceback == "KeyboardInterrupt: No checkpoint was made."
    assert notebook.value("[f for f in __import__('os').listdir(folder) if 'restored' in f]") == "[]"


def _html(message: dict[str, Any]) -> str:
    return str(message["content"].get("data", {}).get("text/html", ""))
