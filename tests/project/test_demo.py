from __future__ import annotations

import contextlib
import io
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

import streamstate as ss
from streamstate.tutorials import demo
from streamstate.tutorials.demo_queries import Bars, Folders, Length, Step
from streamstate.tutorials.tours import SHORT_FILES, TOURS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


_LIMIT = 1800
"""The time limit of a demo in seconds, many times its usual duration."""


@dataclass
class DemoRun:
    """The exit status and the output of a demo."""

    code: int
    output: str


def started(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start the demo as a user does, in a new process group as in a terminal."""
    return subprocess.Popen(
        [sys.executable, "-m", "streamstate.tutorials.demo", *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def ended(process: subprocess.Popen[str]) -> DemoRun:
    """Wait for the end of a demo."""
    output, _ = process.communicate(timeout=_LIMIT)
    return DemoRun(process.returncode, output)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of three successive runs of the demo."""
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def interrupted(folder: Path) -> DemoRun:
    """The demo, interrupted with Ctrl-C after the first committed epoch."""
    process = started(folder, "--epochs", "1")
    commits = folder / "demo" / "checkpoints" / "delays" / "commits"
    while not (commits / "0").exists() and process.poll() is None:
        try:
            process.wait(timeout=0.1)
        except subprocess.TimeoutExpired:
            continue
    os.killpg(process.pid, signal.SIGINT)
    return ended(process)


@pytest.fixture(scope="module")
def finished(folder: Path, interrupted: DemoRun) -> DemoRun:
    """A second, longer run that ends, and compares every epoch with Spark's own state reader."""
    return ended(started(folder, "--epochs", "2", "--verify"))


@pytest.fixture(scope="module")
def repeated(folder: Path, finished: DemoRun) -> DemoRun:
    """A third, shorter run, with nothing left to do."""
    return ended(started(folder, "--epochs", "1"))


def test_an_interrupt_ends_it_cleanly(folder: Path, interrupted: DemoRun) -> None:
    """The exit status is the shell's for Ctrl-C. There is no traceback and no process left, and epoch 0 is captured."""
    assert interrupted.code == 130, interrupted.output
    assert "run it again to go on" in interrupted.output
    assert "Traceback" not in interrupted.output
    assert ss.open_store(folder / "demo" / "store")["delays"].captured()[:1] == [0]
    _, alive = psutil.wait_procs(processes_in(folder), timeout=300)
    assert alive == []


@pytest.mark.exhaustive
def test_the_next_run_continues_and_every_state_equals_sparks(folder: Path, finished: DemoRun) -> None:
    """No epoch is missing after an interrupt, and every table equals the result of Spark's own state reader."""
    assert finished.code == 0, finished.output
    store = ss.open_store(folder / "demo" / "store")
    assert store.queries() == ["delays", "delays_daily", "rotations", "weather"]
    compared = 0
    for name in store:
        history = store[name]
        assert history.captured() == list(range(len(history.captured())))
        assert len(history.captured()) >= 2
        compared += sum(len(history.at(epoch).tables()) for epoch in history.captured())
    assert f"{compared} tables × epochs compared, all equal." in finished.output


@pytest.mark.exhaustive
def test_it_shows_present_and_past_state_of_each_query(finished: DemoRun) -> None:
    """Each of the four queries is shown with its newest and a past state, a diff, a key's history, and SQL."""
    for part in ("epochs captured", "rows of state", "The newest state", "The same at epoch", "From epoch"):
        assert finished.output.count(part) == 4, part
    assert finished.output.count("The history of one key") == 4
    assert len(re.findall(r"VERSION AS OF \d", finished.output)) == 4


@pytest.mark.exhaustive
def test_the_output_of_spark_goes_to_a_file(folder: Path, finished: DemoRun) -> None:
    """Messages of Spark and its workers are not printed."""
    assert "WARN" not in finished.output
    assert "Starting Streaming TransformWithState" not in finished.output
    assert (folder / "demo" / "checkpoints" / "spark.log").exists()


@pytest.mark.exhaustive
def test_the_first_state_is_shown_early(finished: DemoRun) -> None:
    """The state of the first query, at two epochs, is shown before the final states."""
    first = finished.output.index("A first look, while the queries run. delays:")
    assert first < finished.output.index("Its state now, at epoch 1") < finished.output.index("The newest state")
    assert "Its state before, at epoch 0" in finished.output


@pytest.mark.exhaustive
def test_it_prints_the_duration_of_each_part(finished: DemoRun) -> None:
    """Durations are given in seconds, for each part and each query."""
    parts = r"data \d+ s, starting Spark \d+ s, streaming and capture \d+ s, looking \d+ s, verifying \d+ s"
    assert re.search(rf"That took \d+ s in all: {parts}\.", finished.output)
    assert re.search(r"side by side: delays \d+ s, delays_daily \d+ s, weather \d+ s, rotations \d+ s", finished.output)


@pytest.mark.parametrize(
    ("arguments", "quick", "rotations"),
    [([], 8, 8), (["--full"], 27, 27), (["--epochs", "3"], 3, 6), (["--epochs", "99"], 27, 27)],
)
def test_arguments_select_the_number_of_files(arguments: list[str], quick: int, rotations: int) -> None:
    """By default, the demo reads eight of 27 files. An epoch of rotations has two files."""
    parsed = demo._parser().parse_args(arguments)
    length = Length(parsed.epochs, parsed.full)
    assert [length.files(tour, 27) for tour in TOURS] == [quick, quick, quick, rotations]


def test_the_short_demo_has_all_epochs_of_the_tours() -> None:
    """The default demo captures every epoch that a tour shows."""
    for tour in TOURS:
        assert max(tour.past, *tour.between) < SHORT_FILES // tour.files


@pytest.mark.exhaustive
def test_it_prints_how_to_open_the_store(folder: Path, finished: DemoRun) -> None:
    """The printed line of Python runs unchanged."""
    line = re.search(r"Python: +(.+)", finished.output)
    assert line is not None
    subprocess.run([sys.executable, "-c", line[1]], cwd=folder, check=True)


@pytest.mark.exhaustive
def test_a_run_without_new_epochs_says_so(folder: Path, repeated: DemoRun) -> None:
    """A finished demo that is run again shows the same states, even with fewer epochs."""
    assert repeated.code == 0, repeated.output
    assert "nothing is new" in repeated.output
    assert "A first look" not in repeated.output
    assert repeated.output.count("From epoch") == len(TOURS)


def test_a_store_of_another_program_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is not changed, or deleted with --fresh."""
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "mine").touch()
    assert demo.main(["--store", str(tmp_path / "store"), "--fresh"]) == 1
    assert "was not created by this demo" in capsys.readouterr().err
    assert [path.name for path in tmp_path.rglob("*")] == ["store", "mine"]


@pytest.mark.exhaustive
def test_fresh_deletes_the_demos_files(folder: Path, repeated: DemoRun, capsys: pytest.CaptureFixture[str]) -> None:
    """The store is deleted, and the prepared flights are kept."""
    arguments = ["--store", str(folder / "demo/store"), "--data", str(folder / "demo/data/flights"), "--fresh"]
    assert demo.main(arguments) == 1
    assert "holds no prepared flights" in capsys.readouterr().err
    assert not (folder / "demo" / "store").exists()
    assert (folder / "demo" / "data" / "prepared.json").exists()


def test_a_change_of_the_data_folder_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A query must continue with the files that it started with."""
    store = tmp_path / "store"
    Folders(tmp_path / "data", store).claim(fresh=False)
    assert demo.main(["--store", str(store), "--data", str(tmp_path / "others")]) == 1
    assert f"--data {tmp_path / 'data'}" in capsys.readouterr().err


@pytest.mark.parametrize("epochs", ["0", "-3"])
def test_a_demo_has_at_least_one_epoch(tmp_path: Path, capsys: pytest.CaptureFixture[str], epochs: str) -> None:
    """Smaller numbers are refused before anything is written."""
    assert demo.main(["--store", str(tmp_path / "store"), "--epochs", epochs]) == 1
    assert "1 or more" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_bars_are_redrawn_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal shows one line per query, updated in place. Text is printed above the bars."""
    leader, follower = os.openpty()
    monkeypatch.setenv("TERM", "xterm")
    with os.fdopen(follower, "w") as terminal:
        bars = Bars(terminal)
        bars.show([Step("delays", 1, 4)])
        bars.say("a first look")
        bars.show([Step("delays", 4, 4)], last=True)
    output = written_to(leader)
    os.close(leader)
    assert "██████░" in output
    assert "  4 of 4 epochs" in output
    assert output.index("1 of 4") < output.index("\ra first look\r\n") < output.index("4 of 4")


def test_a_file_gets_a_line_of_text() -> None:
    """Without a terminal, only the last state of the bars is printed."""
    stream = io.StringIO()
    bars = Bars(stream)
    bars.show([Step("delays", 1, 4)])
    bars.show([Step("delays", 4, 4), Step("weather", 2, 2)], last=True)
    assert stream.getvalue() == "00:00  delays 4/4, weather 2/2\n"


def written_to(leader: int) -> str:
    """The output to a terminal whose other end is closed. On Linux, its end is an error."""
    chunks = []
    with contextlib.suppress(OSError):
        while chunk := os.read(leader, 4096):
            chunks.append(chunk)
    return b"".join(chunks).decode()


def processes_in(folder: Path) -> Iterator[psutil.Process]:
    """The running processes whose working directory is in a folder."""
    for process in psutil.process_iter():
        try:
            if Path(process.cwd()).is_relative_to(folder) and process.status() != psutil.STATUS_ZOMBIE:
                yield process
        except (psutil.Error, OSError):
            continue
