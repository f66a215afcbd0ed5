"""The magics in a real kernel with Spark: waits can be interrupted, and background threads print nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from notebook_kernel import Kernel, kernel  # noqa: F401 (a fixture)

SETUP = """
import streamstate as ss
spark = ss.session(**{{
    "spark.sql.shuffle.partitions": "1", "spark.driver.memory": "1g", "spark.ui.enabled": "false"
}})
counted = (spark.readStream.schema("k string, v long").option("maxFilesPerTrigger", 1)
           .parquet({folder!r}).groupBy("k").count())
"""
STATUS = "get_ipython().run_line_magic('stream', 'status counts').to_pandas()"


def add(folder: Path, number: int) -> None:
    """Add the input of one epoch."""
    hidden = folder / f"_{number}"
    pd.DataFrame({"k": ["a", "b"], "v": [number, number]}).to_parquet(hidden)
    hidden.rename(folder / f"{number:03}.parquet")


@pytest.fixture
def notebook(kernel: Kernel, tmp_path: Path) -> Iterator[tuple[Kernel, Path]]:
    """The kernel with a running query ``counts``, and the query's input folder."""
    folder = tmp_path / "input"
    folder.mkdir()
    add(folder, 0)
    kernel.works("%reload_ext streamstate")
    kernel.works(SETUP.format(folder=str(folder)))
    kernel.works(f"%%stream counts --store {tmp_path}/data/store -o handle\ncounted")
    kernel.works("%stream wait counts --epoch 0")
    kernel.unasked()
    yield kernel, folder
    kernel.works("%unload_ext streamstate")


def until(kernel: Kernel, expression: str) -> None:
    """Wait until an expression is true, without displaying anything."""
    end = time.monotonic() + 60
    while kernel.value(f"bool({expression})") != "True":
        assert time.monotonic() < end, f"{expression} did not become true"


@pytest.mark.exhaustive
def test_an_interrupt_ends_only_the_wait(notebook: tuple[Kernel, Path]) -> None:
    """The query processes more input, and a second wait succeeds and leaves one line."""
    kernel, folder = notebook
    kernel.works("from streamstate.widgets import progress; progress.SHOW_AFTER = 0")

    def bar(message: dict[str, Any]) -> bool:
        return "<progress" in message["content"].get("data", {}).get("text/html", "")

    result = kernel.run("%stream wait counts --epoch 1", when=bar)
    assert result.failed == "KeyboardInterrupt"
    assert result.traceback == "KeyboardInterrupt: only the wait ended. counts continues."
    assert result.outputs()[0]["text/plain"].startswith("Interrupted. counts is running: captured up to epoch 0")
    add(folder, 1)
    result = kernel.works("%stream wait counts --epoch 1 -o reached")
    assert ["<progress" in data["text/html"] for data in result.outputs()] == [False]
    assert "captured up to epoch 1" in result.outputs()[0]["text/plain"]
    assert int(kernel.value("reached")) >= 1
    assert kernel.value("handle.state") == "running"


@pytest.mark.slow
def test_nothing_is_printed_from_the_background(notebook: tuple[Kernel, Path], tmp_path: Path) -> None:
    """A failed capture is shown in the status only."""
    kernel, folder = notebook
    assert kernel.value(f"{STATUS}['last error'][0]") == "None"
    (tmp_path / "data" / "store").rename(tmp_path / "gone")
    (tmp_path / "data" / "store").write_text("no folder")
    add(folder, 1)
    until(kernel, f"{STATUS}['last error'][0] is not None")
    assert "StoreError" in kernel.value(f"{STATUS}['last error'][0]")
    assert kernel.unasked() == []
    (tmp_path / "data" / "store").unlink()
    (tmp_path / "gone").rename(tmp_path / "data" / "store")
    until(kernel, f"{STATUS}['epoch'][0] == 1")
    assert kernel.value(f"{STATUS}['last error'][0]") == "None"
    assert kernel.unasked() == []


@pytest.mark.slow
def test_the_kernel_completes_and_shows_help(notebook: tuple[Kernel, Path]) -> None:
    """Completion works through the kernel's protocol. ``?`` and ``--help`` show the same text."""
    kernel, _folder = notebook
    assert kernel.completions("x = 1\n%state counts diff |") == ["0", "live"]
    assert kernel.completions("%stream stop c|") == ["counts"]
    assert kernel.completions("%%statesql\nSELECT c.| FROM counts c") == ["c.k", "c.count"]
    printed = kernel.works("%state --help").printed.strip()
    assert printed.startswith("usage: %state")
    assert printed in kernel.inspected("%state")
    assert kernel.works("%stream wait?").printed == kernel.works("%stream wait --help").printed


def test_stopping_captures_all_committed_epochs(notebook: tuple[Kernel, Path]) -> None:
    """The table has the last epoch, with nothing left to capture."""
    kernel, folder = notebook
    add(folder, 1)
    until(kernel, "any(p['batchId'] >= 1 and p['numInputRows'] for p in handle.query.recentProgress)")
    result = kernel.works("%stream stop counts -o ended")
    shown = [data["text/plain"] for data in result.outputs()]  # in any order with the query's own line
    assert any("counts  ■ stopped" in text for text in shown)
    assert kernel.value("ended[['epoch', 'behind']].values.tolist()") == "[[1, 0]]"
