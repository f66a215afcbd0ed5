"""A real IPython shell in which tests run cells as a notebook does."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from traitlets.config import Config

from streamstate.extension import load, loaded, unload
from streamstate.magics.notebook_context import NotebookContext

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Shell:
    """Runs cells and records what they print."""

    def __init__(self, shell: InteractiveShell) -> None:
        self.ipython = shell
        self.printed = ""
        """The output of the last cell, including errors."""

    @property
    def names(self) -> dict[str, Any]:
        """The user's variables."""
        names: dict[str, Any] = self.ipython.user_ns
        return names

    @property
    def notebook(self) -> NotebookContext:
        """The state that the magics share."""
        extension = loaded(self.ipython)
        assert extension is not None
        return extension.notebook

    def run(self, cell: str) -> Any:
        """Run a cell that must succeed; return its value."""
        result = self._run(cell)
        result.raise_error()
        return result.result

    def fails(self, cell: str, error: type[BaseException] | tuple[type[BaseException], ...]) -> str:
        """Run a cell that must fail with an error; return the error's message."""
        raised = self._run(cell).error_in_exec
        assert isinstance(raised, error), f"{raised!r}\n{self.printed}"
        return str(raised)

    def completions(self, cell: str) -> list[str]:
        """The completions at the ``|`` in a cell."""
        before, _, after = cell.partition("|")
        with provisionalcompleter():
            found = self.ipython.Completer.completions(before + after, len(before))
            return [completion.text for completion in found]

    def _run(self, cell: str) -> Any:
        with capture_output() as captured:
            result = self.ipython.run_cell(cell)
        self.printed = captured.stdout + captured.stderr
        return result


def ipython() -> InteractiveShell:
    """Return the shell of this process, which keeps no history, without the settings of an earlier test."""
    config = Config()
    config.HistoryManager.enabled = False
    shell = InteractiveShell.instance(config=config)
    shell.config.pop("StreamState", None)  # %config has set them
    return shell


@pytest.fixture
def bare_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    """A shell with the extension loaded and no ``spark``, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(os.environ, "IPYTHONDIR", str(tmp_path / ".ipython"))
    shell = ipython()
    with monkeypatch.context() as patch:
        patch.setattr("gc.collect", lambda: 0)  # which takes a while in a process that has run many tests
        shell.reset(new_session=True)
    load(shell)
    yield Shell(shell)
    unload(shell)


class Lines(list[str]):
    """A progress bar that records its lines."""

    def show(self, line: str, _share: float | None) -> None:
        """Record a message."""
        self.append(line)

    def finish(self, line: str) -> None:
        """Record the last line."""
        self.append(line)


@pytest.fixture
def shown_at_once(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """All progress lines, shown without delay."""
    lines = Lines()
    monkeypatch.setattr("streamstate.widgets.progress.SHOW_AFTER", 0)
    monkeypatch.setattr("streamstate.widgets.progress.PAUSE", 0)
    monkeypatch.setattr("streamstate.widgets.progress.bar_of", lambda _shell: lambda: lines)
    return lines


@pytest.fixture
def shell(bare_shell: Shell, spark: SparkSession) -> Shell:
    """A shell with the variable ``spark``."""
    bare_shell.names["spark"] = spark
    return bare_shell
