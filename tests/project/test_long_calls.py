"""Calls that may take seconds show their progress where somebody waits: in a notebook or a terminal."""

from __future__ import annotations

import importlib
import inspect
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from notebook_shell import Lines

import streamstate as ss
from streamstate import reports
from streamstate.snapshots.calls.progress_callback import (
    ProgressCallback,
    long_call,
    report_progress,
    set_progress_display,
    silent,
)
from streamstate.widgets import progress as bars
from streamstate.widgets.progress import Progress, shown_in_shell

LONG = {
    "audit": "replay.audit.auditing",
    "bootstrap": "operations.new_checkpoint.bootstrap",
    "capture": "snapshots.capture.capture",
    "check": "operations.code_check.check",
    "compact": "snapshots.store.retention.tidying",
    "drill": "operations.drill.run",
    "export": "snapshots.store.export",
    "fork": "replay.forks.make_fork",
    "migrate": "operations.new_checkpoint.migrate",
    "promote": "operations.promotion.promoting",
    "replay": "replay.replay",
    "rescale": "operations.rescaling.rescale",
    "restore": "operations.new_checkpoint.restore",
    "retain": "snapshots.store.retention.dropping",
    "step": "replay.stepping.step",
}
"""Functions that may take seconds, and their modules."""


@pytest.fixture
def displayed() -> Iterator[list[str]]:
    """The lines that the display of calls receives."""
    lines: list[str] = []

    @contextmanager
    def display(call: str, interrupted: str) -> Iterator[ProgressCallback]:
        lines.append(f"{call}: {interrupted}")
        yield lambda message, share: lines.append(f"{message} {share}")
        lines.append("end")

    before = set_progress_display(display)
    yield lines
    set_progress_display(before)


@long_call("Nothing was copied.")
def copied(what: str, *, progress: ProgressCallback | None = None) -> str:
    """Copy something."""
    (progress or silent)(f"copying {what}", 0.5)
    return what


@long_call("Nothing was found.", name="The search")
def found(**key: object) -> dict[str, object]:
    """Find something, by copying."""
    report_progress("reading")
    copied("rows")
    return key


def test_a_call_without_callback_is_displayed(displayed: list[str]) -> None:
    """With its name, its messages, and what an interrupt leaves behind."""
    assert copied("a") == "a"
    assert displayed == ["copied: Nothing was copied.", "copying a 0.5", "end"]


def test_a_callback_takes_the_place_of_the_display(displayed: list[str]) -> None:
    """Its messages go to the callback alone."""
    seen: list[tuple[str, float | None]] = []
    copied("a", progress=lambda message, share: seen.append((message, share)))
    assert (seen, displayed) == ([("copying a", 0.5)], [])


def test_a_call_inside_another_has_no_display_of_its_own(displayed: list[str]) -> None:
    """It is a part of the other one."""

    @long_call("Nothing was moved.")
    def moved() -> None:
        report_progress("moving")
        found()

    moved()
    assert displayed == ["moved: Nothing was moved.", "moving None", "reading None", "end"]


def test_a_key_column_may_be_called_progress(displayed: list[str]) -> None:
    """Only the argument of a call that takes a callback is one."""
    assert found(progress=7) == {"progress": 7}
    assert displayed[0] == "The search: Nothing was found."


def test_without_a_display_nothing_is_reported() -> None:
    """As in a script."""
    before = set_progress_display(None)
    try:
        assert found(k=1) == {"k": 1}
    finally:
        set_progress_display(before)


def test_in_other_threads_nothing_is_displayed() -> None:
    """A background thread's output would appear below any cell."""
    callbacks: list[ProgressCallback] = []

    def call() -> None:
        with shown_in_shell("call", "Nothing.") as callback:
            callbacks.append(callback)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert [callback("message", 0.5) for callback in callbacks] == [None]


def test_every_long_function_shows_its_progress() -> None:
    """The functions are marked as long calls; a public method with ``progress=`` calls one, or is marked itself."""
    for name, module in LONG.items():
        assert hasattr(getattr(importlib.import_module(f"streamstate.{module}"), name), "__wrapped__"), name
    for noun in (ss.Checkpoint, reports.Fork, reports.History, reports.Snapshot):
        for name, method in inspect.getmembers(noun, inspect.isfunction):
            if "progress" in inspect.signature(method).parameters:
                assert name in LONG or hasattr(method, "__wrapped__"), f"{noun.__name__}.{name}"


def test_the_time_goes_on_without_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that work with few steps is seen to go on."""
    twice = threading.Event()

    class Counted(Lines):
        def show(self, line: str, _share: float | None) -> None:
            """Record a message, and note the second one."""
            self.append(line)
            if len(self) > 1:
                twice.set()

    lines: Any = Counted()
    monkeypatch.setattr(bars, "_TICK", 0.0)
    progress = Progress(lambda: lines, after=0.0)
    with progress.refreshed():
        progress.say("writing the state")
        assert twice.wait(10)
    progress.finish("written")
    assert lines[-1] == "written"
    assert {*lines[:-1]} == {"writing the state"}
