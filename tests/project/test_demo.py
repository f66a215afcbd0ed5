from __future__ import annotations

import contextlib
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
from streamstate.tutorials.folders import Folders
from streamstate.tutorials.progress import Bars, Step

pytestmark = pytest.mark.slow

ARGUMENTS = ["--epochs", "2"]


@dataclass
class Ran:
    """A demo that has ended."""

    code: int
    output: str


def started(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """The demo as a user starts it, in a process group of its own as a terminal has it."""
    return subprocess.Popen(
        [sys.executable, "-m", "streamstate.tutorials.demo", *ARGUMENTS, *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def ended(process: subprocess.Popen[str]) -> Ran:
    """Its exit status and output, once it has ended."""
    output, _ = process.communicate(timeout=400)
    return Ran(process.returncode, output)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the demo is run, three times in a row."""
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def interrupted(folder: Path) -> Ran:
    """The demo, ended with Ctrl-C when the first epochs had been committed."""
    process = started(folder)
    commits = folder / "demo" / "checkpoints" / "delays" / "commits"
    while not (commits / "0").exists() and process.poll() is None:
        try:
            process.wait(timeout=0.1)
        except subprocess.TimeoutExpired:
            continue
    os.killpg(process.pid, signal.SIGINT)
    return ended(process)


@pytest.fixture(scope="module")
def finished(folder: Path, interrupted: Ran) -> Ran:
    """The demo once more, to the end, and compared with Spark's own state reader."""
    return ended(started(folder, "--verify"))


@pytest.fixture(scope="module")
def repeated(folder: Path, finished: Ran) -> Ran:
    """The demo once more where there is nothing left to do."""
    return ended(started(folder))


def test_an_interrupt_ends_it_cleanly(folder: Path, interrupted: Ran) -> None:
    """No traceback, the shell's exit status for Ctrl-C, no process left, what was committed captured."""
    assert interrupted.code == 130, interrupted.output
    assert "run it again to go on" in interrupted.output
    assert "Traceback" not in interrupted.output
    assert ss.open_store(folder / "demo" / "store")["delays"].captured()[:1] == [0]
    _, alive = psutil.wait_procs(processes_in(folder), timeout=30)
    assert alive == []


def test_the_next_run_goes_on_and_everything_is_as_spark_says(folder: Path, finished: Ran) -> None:
    """No epoch is missing after an interruption, and each equals what Spark's own state reader returns."""
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


def test_it_shows_each_query_now_and_before(finished: Ran) -> None:
    """Epochs, rows of state, the newest state, a past one, a diff, a key's history and SQL, for each of the four."""
    for part in ("epochs captured", "rows of state", "The newest state", "The same at epoch", "From epoch"):
        assert finished.output.count(part) == 4, part
    assert finished.output.count("The history of one key") == 4
    assert len(re.findall(r"VERSION AS OF \d", finished.output)) == 4


def test_sparks_own_messages_go_to_a_file(folder: Path, finished: Ran) -> None:
    """Nothing that Spark or its workers write reaches the terminal."""
    assert "WARN" not in finished.output
    assert "Starting Streaming TransformWithState" not in finished.output
    assert (folder / "demo" / "checkpoints" / "spark.log").exists()


def test_it_says_how_to_open_the_store(folder: Path, finished: Ran) -> None:
    """The line it prints runs as it stands."""
    line = re.search(r"Python: +(.+)", finished.output)
    assert line is not None
    subprocess.run([sys.executable, "-c", line[1]], cwd=folder, check=True)


def test_a_run_with_nothing_to_do_says_so(folder: Path, repeated: Ran) -> None:
    """A finished demo run again changes nothing and shows the same."""
    assert repeated.code == 0, repeated.output
    assert "nothing is new" in repeated.output


def test_a_store_of_somebody_else_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither written to nor, with --fresh, deleted."""
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "mine").touch()
    assert demo.main(["--store", str(tmp_path / "store"), "--fresh"]) == 1
    assert "did not make it" in capsys.readouterr().err
    assert [path.name for path in tmp_path.rglob("*")] == ["store", "mine"]


def test_fresh_deletes_what_the_demo_made(folder: Path, repeated: Ran, capsys: pytest.CaptureFixture[str]) -> None:
    """The store and the checkpoints go, the flights stay."""
    wrong = ["--store", str(folder / "demo" / "store"), "--data", str(folder / "demo" / "data" / "flights"), "--fresh"]
    assert demo.main(wrong) == 1
    assert "holds no prepared flights" in capsys.readouterr().err
    assert not (folder / "demo" / "store").exists()
    assert (folder / "demo" / "data" / "prepared.json").exists()


def test_other_data_than_the_queries_began_with_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A query goes on only with the files that it began with."""
    store = tmp_path / "store"
    Folders(tmp_path / "data", store).claim(fresh=False)
    assert demo.main(["--store", str(store), "--data", str(tmp_path / "others")]) == 1
    assert f"--data {tmp_path / 'data'}" in capsys.readouterr().err


@pytest.mark.parametrize("epochs", ["0", "-3"])
def test_no_epochs_cannot_be_meant(tmp_path: Path, capsys: pytest.CaptureFixture[str], epochs: str) -> None:
    """Refused before anything is written."""
    assert demo.main(["--store", str(tmp_path / "store"), "--epochs", epochs]) == 1
    assert "1 or more" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_bars_fill_up_in_place_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal shows one line a query, redrawn where it stands."""
    leader, follower = os.openpty()
    monkeypatch.setenv("TERM", "xterm")
    with os.fdopen(follower, "w") as terminal:
        bars = Bars(terminal)
        bars.show([Step("delays", 1, 4)])
        bars.show([Step("delays", 4, 4)], last=True)
    shown = written_to(leader)
    os.close(leader)
    assert "██████░" in shown
    assert "  4 of 4 epochs" in shown
    assert shown.count("\x1b[2F") == 1


def written_to(leader: int) -> str:
    """All that was written to a terminal whose other end is closed; in pieces, and on Linux an error ends it."""
    pieces = []
    with contextlib.suppress(OSError):
        while piece := os.read(leader, 4096):
            pieces.append(piece)
    return b"".join(pieces).decode()


def processes_in(folder: Path) -> Iterator[psutil.Process]:
    """Processes that were started in a folder and still run."""
    for process in psutil.process_iter():
        try:
            if Path(process.cwd()).is_relative_to(folder) and process.status() != psutil.STATUS_ZOMBIE:
                yield process
        except (psutil.Error, OSError):
            continue
