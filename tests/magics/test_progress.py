"""Progress of long work: a bar while it goes on, one plain line at its end, and an interrupt that harms nothing."""

from __future__ import annotations

import io
import signal
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from notebook_kernel import Kernel, kernel  # noqa: F401 (a fixture)
from notebook_shell import Lines, Shell, bare_shell, shown_at_once  # noqa: F401 (fixtures)
from synthetic import LOG, START

import streamstate as ss
from streamstate.magics.progress import NoPlace, Progress, TerminalLine, working
from streamstate.snapshots.change_log import PUT, log_schema
from streamstate.snapshots.delta import append_once, open_or_create
from streamstate.snapshots.layout import CAPTURED, Layout
from streamstate.snapshots.manifest import Entry, Manifest, TableFacts
from streamstate.snapshots.registry import register
from streamstate.state_inspect.temporal_index.loading import loading_told

KEYS, EPOCHS = 1_000_000, 3
BARS = "len([one for one in get_ipython().kernel.comm_manager.comms.values() if one.target_name.startswith('jupyter')])"


def large(path: Path, keys: int = KEYS) -> Path:
    """A store with a query ``q`` that changes every key in each of some epochs."""
    layout = Layout.at(path)
    register(layout, "q", "id", "checkpoint")
    log = layout.change_log("q", "op0")
    open_or_create(log, log_schema(LOG, ["key"]), "log")
    names = pa.array([f"key{number:07}" for number in range(keys)])
    for epoch in range(EPOCHS):
        columns = [pa.array(np.full(keys, epoch)), pa.array([PUT]).take(pa.array(np.zeros(keys, "int64")))]
        columns += [pa.array(np.zeros(keys, "int32")), names, pa.array(np.arange(keys) + epoch)]
        rows = pa.Table.from_arrays(columns, schema=LOG)
        append_once(log, "q/op0", epoch, partial(_given, rows))
        facts = {"op0": TableFacts(keys, keys, None)}
        Manifest(layout, "q").append([Entry(epoch, CAPTURED, committed_at=START, offsets="[0]", tables=facts)], "q/_e")
    return path


def _given(rows: pa.Table, _stands: int) -> pa.Table:
    return rows


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose index takes seconds to build."""
    return large(tmp_path_factory.mktemp("large") / "store")


class Clock:
    """Seconds that pass when the test says so."""

    now = 0.0

    def __call__(self) -> float:
        """The time."""
        return self.now


def test_quick_work_shows_nothing() -> None:
    """And leaves nothing."""
    place = Lines()
    progress = Progress(lambda: place, after=0.5, clock=Clock())
    progress.say("halfway", 1, 2)
    progress.settle()
    assert place == []


def test_slow_work_is_shown_now_and_then_and_settles() -> None:
    """At most five times a second; what comes between is left out, and the last line stays."""
    place, clock = Lines(), Clock()
    progress = Progress(lambda: place, after=0.5, clock=clock)
    for step in range(20):
        clock.now = step / 10
        progress.say(f"at {step / 10:.1f}", step, 20)
    progress.settle()
    assert place == ["at 0.5", "at 0.7", "at 0.9", "at 1.1", "at 1.3", "at 1.5", "at 1.7", "at 1.9", "at 1.9"]


@pytest.mark.parametrize(
    ("done", "total", "share"), [(1, 4, 0.25), (5, 4, 1.0), (-1, 4, 0.0), (None, None, None), (3, 0, None)]
)
def test_a_share_is_a_share(done: float | None, total: float | None, share: float | None) -> None:
    """Between nothing and all; unknown where there is nothing to compare with."""
    seen = []

    class Shares(Lines):
        def show(self, line: str, share: float | None) -> None:
            """Keep the share."""
            seen.append(share)

    Progress(Shares, after=0, clock=Clock()).say("line", done, total)
    assert seen == [share]


def test_a_terminal_has_one_line_that_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """What stood there before is written over; the last line stays."""
    written = io.StringIO()
    monkeypatch.setattr("sys.stdout", written)
    line = TerminalLine()
    line.show("reading", 0.5)
    line.settle("done")
    first, second, third = written.getvalue().split("\r")
    assert (first, second) == ("", "[##########          ]  50%  reading")
    assert third == "done".ljust(len(second)) + "\n"


def test_an_output_that_cannot_change_has_the_last_line_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """A file is no terminal."""
    place = NoPlace()
    place.show("reading", 0.5)
    place.settle("done")
    assert capsys.readouterr().out == "done\n"


def test_an_engines_own_error_is_the_interrupt_all_the_same(bare_shell: Shell, shown_at_once: list[str]) -> None:
    """DuckDB raises an error of its own when it is interrupted; whoever pressed the button is told in one line."""

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


def test_the_index_tells_how_far_it_is(store: Path) -> None:
    """Rows read, of about as many as there are; the second look reads nothing."""
    told: list[tuple[str, int, int]] = []
    history = ss.open_store(store)["q"]
    with loading_told(lambda *one: told.append(one)):
        assert history.at(0).table().count() == KEYS
    assert {one[0] for one in told} == {"q/op0"}
    assert [one[1] for one in told] == sorted(one[1] for one in told)
    assert told[-1][1:] == (KEYS * EPOCHS, KEYS * EPOCHS)
    told.clear()
    with loading_told(lambda *one: told.append(one)):
        assert history.at(1).table().count() == KEYS
    assert not told


def test_a_load_that_was_broken_off_anywhere_is_not_believed(tmp_path: Path) -> None:
    """Also where the interrupt came after the commit, before anybody noted it: the next look reads again."""
    history = ss.open_store(large(tmp_path / "s", 1000))["q"]

    def stop(_name: str, _read: int, _expected: int) -> None:
        raise KeyboardInterrupt

    with loading_told(stop), pytest.raises(Exception, match="KeyboardInterrupt"):
        history.live().table()
    assert history.live().table().count() == 1000
    held = history.index.held("q", "op0")
    assert held is not None
    held.low, held.high, held._unsure = 2, 1, True
    assert history.live().table().count() == 1000
    assert history.at(0).table().lookup(key="key0000007") == {"key": "key0000007", "value": 7}
    assert len(history.key_history(key="key0000007")) == EPOCHS


def _bar_shown(message: dict[str, object]) -> bool:
    return "application/vnd.jupyter.widget-view+json" in dict(dict(message["content"]).get("data") or {})  # type: ignore[call-overload]


def test_the_first_look_at_a_long_history_shows_a_bar_and_leaves_a_line(kernel: Kernel, store: Path) -> None:
    """No widget is left in the notebook that is saved, and none in the kernel."""
    kernel.works("from streamstate.magics import progress; progress.SHOW_AFTER = 0")
    before = kernel.value(BARS)
    ran = kernel.works(f"top = %state q --store {store} --at 1 --top 3 --by value")
    assert any(_bar_shown(message) for message in ran.messages)
    shown = ran.outputs()
    assert [list(one) for one in shown] == [["text/plain", "text/html"]]
    assert "3,000,000 rows of q.op0" in shown[0]["text/plain"]
    assert kernel.value(BARS) == before
    assert kernel.value("len(top)") == "3"
    assert kernel.works("top = %state q --at 0 --top 3 --by value").outputs() == []


def test_an_interrupt_ends_the_building_and_the_next_call_works(kernel: Kernel, store: Path) -> None:
    """In a line, with nothing left open; what is read afterwards is right."""
    kernel.works("from streamstate.magics import progress; progress.SHOW_AFTER = 0")
    kernel.works("%reload_ext streamstate")
    before = kernel.value(BARS)
    ran = kernel.run(f"%state q --store {store} --at 1 --top 3 --by value", when=_bar_shown)
    assert ran.failed == "KeyboardInterrupt"
    assert ran.traceback == "KeyboardInterrupt: what was read before is as it was; run the line again to read the rest."
    assert [list(one) for one in ran.outputs()] == [["text/plain", "text/html"]]
    assert ran.outputs()[0]["text/plain"].startswith(("Interrupted. Reading q.op0", "Interrupted. Putting"))
    assert kernel.value(BARS) == before
    kernel.works("top = %state q --at 1 --top 3 --by value")
    assert kernel.value("list(top['value'])") == str([KEYS, KEYS - 1, KEYS - 2])
    assert kernel.value("len(get_ipython().run_line_magic('state', 'q --key key=key0000007 --history'))") == str(EPOCHS)
