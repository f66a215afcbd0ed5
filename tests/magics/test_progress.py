"""Progress of long work: a bar while it runs, one line at its end, and interrupts without damage."""

from __future__ import annotations

import io
import signal
import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from notebook_kernel import Kernel, kernel  # noqa: F401 (a fixture)
from notebook_shell import Lines, Shell, bare_shell, shown_at_once  # noqa: F401 (fixtures)
from synthetic import LOG, START

import streamstate as ss
from streamstate.snapshots.store.changelog import PUT, log_schema
from streamstate.snapshots.store.delta import append_once, open_or_create
from streamstate.snapshots.store.entries import Entry, TableEntry
from streamstate.snapshots.store.layout import CAPTURED, Layout
from streamstate.snapshots.store.manifest import Manifest
from streamstate.snapshots.store.registry import register
from streamstate.state_inspect.temporal_index.loading import loading_progress
from streamstate.widgets.progress import Progress, ProgressBar, working

KEYS, EPOCHS = 1_000_000, 3


def large(path: Path, keys: int = KEYS) -> Path:
    """Write a store with a query ``q`` that changes every key in every epoch."""
    layout = Layout.at(path)
    register(layout, "q", "id", "checkpoint")
    log = layout.changelog("q", "op0")
    open_or_create(log, log_schema(LOG, ["key"]), "log")
    names = pa.array([f"key{number:07}" for number in range(keys)])
    for epoch in range(EPOCHS):
        columns = [pa.array(np.full(keys, epoch)), pa.array([PUT]).take(pa.array(np.zeros(keys, "int64")))]
        columns += [pa.array(np.zeros(keys, "int32")), names, pa.array(np.arange(keys) + epoch)]
        rows = pa.Table.from_arrays(columns, schema=LOG)
        append_once(log, "q/op0", epoch, partial(_all_of, rows))
        facts = {"op0": TableEntry(keys, keys, None)}
        Manifest(layout, "q").append([Entry(epoch, CAPTURED, committed_at=START, offsets="[0]", tables=facts)], "q/_e")
    return path


def _all_of(rows: pa.Table, _stands: int) -> pa.Table:
    return rows


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose index takes seconds to build."""
    return large(tmp_path_factory.mktemp("large") / "store")


class Clock:
    """A clock that tests set."""

    now = 0.0

    def __call__(self) -> float:
        """The time in seconds."""
        return self.now


def bar_on(lines: Lines) -> Any:
    """A factory of bars that record their lines."""
    return lambda: lines


def test_quick_work_shows_nothing() -> None:
    """No line is shown, not even at the end."""
    lines = Lines()
    progress = Progress(bar_on(lines), after=0.5, clock=Clock())
    progress.say("halfway", 1, 2)
    progress.finish()
    assert lines == []


def test_slow_work_is_shown_at_most_five_times_a_second() -> None:
    """Messages in between are skipped, except for the last one."""
    lines, clock = Lines(), Clock()
    progress = Progress(bar_on(lines), after=0.5, clock=clock)
    for step in range(20):
        clock.now = step / 10
        progress.say(f"at {step / 10:.1f}", step, 20)
    progress.finish()
    assert lines == ["at 0.5", "at 0.7", "at 0.9", "at 1.1", "at 1.3", "at 1.5", "at 1.7", "at 1.9", "at 1.9"]


def test_a_message_that_stays_is_drawn_once_a_second() -> None:
    """Its time goes on. The next message does not have to wait for a second."""
    lines, clock = Lines(), Clock()
    progress = Progress(bar_on(lines), after=0, clock=clock)
    for step in range(13):
        clock.now = step / 10
        progress.say("reading")
    clock.now = 1.3
    progress.say("sorting")
    assert lines == ["reading", "reading", "sorting"]


@pytest.mark.parametrize(
    ("done", "total", "share"), [(1, 4, 0.25), (5, 4, 1.0), (-1, 4, 0.0), (None, None, None), (3, 0, None)]
)
def test_the_share_is_between_0_and_1(done: float | None, total: float | None, share: float | None) -> None:
    """It is unknown without a total."""
    seen = []

    class Shares(Lines):
        def show(self, _line: str, share: float | None) -> None:
            """Record the share."""
            seen.append(share)

    Progress(bar_on(Shares()), after=0, clock=Clock()).say("line", done, total)
    assert seen == [share]


class Terminal(io.StringIO):
    """Output to a terminal."""

    def isatty(self) -> bool:
        """Return True."""
        return True


def test_a_terminal_shows_one_updated_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bar is overwritten by each update, and finally by the last line."""
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    bar = ProgressBar(in_notebook=False)
    bar.show("reading", 0.5)
    bar.show("sorting", None)
    bar.finish("done")
    frames = terminal.getvalue().split("\r")
    assert any("50%|" in frame and "reading" in frame for frame in frames)
    assert any("sorting" in frame and "%" not in frame for frame in frames)
    assert frames[-1] == "done\n"
    assert frames[-2].strip() == ""


def test_a_file_gets_the_last_line_only(capsys: pytest.CaptureFixture[str]) -> None:
    """There is no bar, because the output cannot be overwritten."""
    bar = ProgressBar(in_notebook=False)
    bar.show("reading", 0.5)
    bar.finish("done")
    assert capsys.readouterr() == ("done\n", "")


def test_an_interrupted_bar_does_not_block_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """All bars share tqdm's lock, and DuckDB reports progress on its own threads."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    bar = ProgressBar(in_notebook=True)
    monkeypatch.setattr(bar, "_update", interrupted)
    with pytest.raises(KeyboardInterrupt):
        bar.show("reading", 0.5)
    monkeypatch.setattr(ProgressBar, "_update", lambda *_: None)
    other = ProgressBar(in_notebook=True)
    thread = threading.Thread(target=other.show, args=("reading", 0.5), daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()


def test_a_bar_starts_no_thread() -> None:
    """By default, tqdm starts one that refreshes its bars."""
    before = set(threading.enumerate())
    bar = ProgressBar(in_notebook=True)
    assert set(threading.enumerate()) == before
    bar.close()


def test_an_interrupted_engine_is_reported_as_an_interrupt(bare_shell: Shell, shown_at_once: list[str]) -> None:
    """DuckDB raises its own error when it is interrupted. The user sees one line about the interrupt."""

    def work() -> None:
        with working(bare_shell.ipython, stays="all is well.") as progress:
            progress.say("reading")
            try:
                signal.raise_signal(signal.SIGINT)
            except KeyboardInterrupt:
                raise RuntimeError("Query interrupted") from None

    with pytest.raises(KeyboardInterrupt) as raised:
        work()
    assert raised.value.__dict__["_render_traceback_"]() == ["KeyboardInterrupt: all is well."]
    assert shown_at_once == ["reading", "Interrupted. reading"]


@pytest.mark.slow
def test_the_index_reports_its_progress(store: Path) -> None:
    """A report has the rows read and the expected rows. A second query reads nothing."""
    reports: list[tuple[str, int, int]] = []
    history = ss.open_store(store)["q"]
    with loading_progress(lambda *report: reports.append(report)):
        assert history.at(0).table().count() == KEYS
    assert {name for name, _, _ in reports} == {"q/op0"}
    assert [read for _, read, _ in reports] == sorted(read for _, read, _ in reports)
    assert reports[-1][1:] == (KEYS * EPOCHS, KEYS * EPOCHS)
    reports.clear()
    with loading_progress(lambda *report: reports.append(report)):
        assert history.at(1).table().count() == KEYS
    assert not reports


def test_an_interrupted_load_is_repeated(tmp_path: Path) -> None:
    """This includes an interrupt after the commit, before the load is recorded."""
    history = ss.open_store(large(tmp_path / "s", 1000))["q"]

    def stop(_name: str, _read: int, _expected: int) -> None:
        raise KeyboardInterrupt

    with loading_progress(stop), pytest.raises(Exception, match="KeyboardInterrupt"):
        history.live().table()
    assert history.live().table().count() == 1000
    loaded = history.recorded.index.held("q", "op0")
    assert loaded is not None
    loaded.low, loaded.high, loaded._unsure = 2, 1, True
    assert history.live().table().count() == 1000
    assert history.at(0).table().lookup(key="key0000007") == {"key": "key0000007", "value": 7}
    assert len(history.key_history(key="key0000007")) == EPOCHS


def _is_bar(message: dict[str, Any]) -> bool:
    return "<progress" in message["content"].get("data", {}).get("text/html", "")


@pytest.mark.slow
def test_loading_a_long_history_shows_a_bar_and_leaves_a_line(kernel: Kernel, store: Path) -> None:
    """One display is updated in place, without widgets, and keeps only the last line."""
    kernel.works("from streamstate.widgets import progress; progress.SHOW_AFTER = 0")
    result = kernel.works(f"top = %state q at 1 --store {store} --limit 3 --by value")
    assert any(_is_bar(message) for message in result.messages)
    assert not any(message["header"]["msg_type"].startswith("comm") for message in result.messages)
    outputs = result.outputs()
    assert [list(data) for data in outputs] == [["text/plain", "text/html"]]
    assert "3,000,000 rows of q.op0" in outputs[0]["text/plain"]
    assert "<progress" not in outputs[0]["text/html"]
    assert result.printed == ""
    assert kernel.value("len(top)") == "3"
    assert kernel.works("top = %state q at 0 --limit 3 --by value").outputs() == []


@pytest.mark.slow
def test_after_an_interrupted_load_the_next_call_works(kernel: Kernel, store: Path) -> None:
    """The interrupt is reported in one line, and later results are correct."""
    kernel.works("from streamstate.widgets import progress; progress.SHOW_AFTER = 0")
    kernel.works("%reload_ext streamstate")
    result = kernel.run(f"%state q at 1 --store {store} --limit 3 --by value", when=_is_bar)
    assert result.failed == "KeyboardInterrupt"
    assert result.traceback == "KeyboardInterrupt: what was loaded before is kept. Run the line again to load the rest."
    assert [list(data) for data in result.outputs()] == [["text/plain", "text/html"]]
    assert result.outputs()[0]["text/plain"].startswith(("Interrupted. Loading q.op0", "Interrupted. Sorting"))
    kernel.works("top = %state q at 1 --limit 3 --by value")
    assert kernel.value("list(top['value'])") == str([KEYS, KEYS - 1, KEYS - 2])
    assert kernel.value("len(get_ipython().run_line_magic('state', 'q key key=key0000007'))") == str(EPOCHS)
