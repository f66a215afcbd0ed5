"""``%stream fork``, ``step``, ``back``, ``replay`` and ``debug`` in a notebook."""

from __future__ import annotations

import shutil
import signal
import threading
from pathlib import Path

import pytest
from branch_stores import counting
from conftest import Source, counts, letters
from notebook_shell import Shell, bare_shell, shell  # noqa: F401 (fixtures)
from pyspark.sql.streaming import DataStreamWriter

import streamstate as ss
from streamstate.errors import (
    EpochGoneError,
    ForkError,
    InvalidArgumentError,
    InvalidNameError,
    NameTakenError,
    QueryError,
    UnknownQueryError,
)
from streamstate.replay.debugging.session import DebugSession
from streamstate.reports import Fork

VERBS = ("fork", "step", "back", "replay", "debug")


@pytest.fixture
def ran(shell: Shell, source: Source) -> Shell:
    """A shell with a finished query ``counts`` of four epochs."""
    for epoch in range(4):
        source.add(letters(epoch))
    shell.names["counted"] = counts(source)
    shell.run("%%stream counts --trigger available-now\ncounted").wait(timeout=300)
    return shell


def rows(shell: Shell, query: str, epoch: int) -> list[tuple[object, ...]]:
    """The state of a query at an epoch."""
    table = ss.open_store(shell.notebook.store_path())[query].at(epoch).table()
    return sorted(tuple(row) for row in table.to_pandas().astype(object).itertuples(index=False))


@pytest.mark.slow
def test_a_fork_of_a_purged_epoch_is_restored_from_the_store(ran: Shell) -> None:
    """It is a fork like any other."""
    checkpoint = ran.notebook.query("counts").checkpoint
    for log in ("commits", "offsets"):
        (Path(checkpoint) / log / "1").unlink()
    ran.run("%stream fork counts --at 1 --as what_if")
    assert "what_if is a fork of counts at epoch 1." in ran.printed
    assert rows(ran, "what_if", 1) == rows(ran, "counts", 1)
    ran.fails("%stream fork counts --at 1 --as edited --edit \"DELETE FROM op0 WHERE k = 'a'\"", EpochGoneError)


@pytest.mark.slow
def test_a_fork_of_a_checkpoint_that_is_gone(ran: Shell) -> None:
    """The notebook knows the query's code, so the store is enough; it is a fork like any other."""
    shutil.rmtree(ran.notebook.query("counts").checkpoint)
    ran.run("%stream fork counts --as again")
    assert "again is a fork of counts at epoch 3." in ran.printed
    assert rows(ran, "again", 3) == rows(ran, "counts", 3)
    ran.run("%stream fork counts --at 1 --as what_if")
    assert rows(ran, "what_if", 1) == rows(ran, "counts", 1)


@pytest.mark.slow
def test_a_fork_is_stepped_and_goes_back(ran: Shell) -> None:
    """Each epoch equals the original's. Going back creates a branch, and the old branch is kept."""
    fork = ran.run("%stream fork counts --at 1 --as what_if -o fork")
    assert "what_if is a fork of counts at epoch 1." in ran.printed
    assert fork is None
    assert ran.names["fork"].epoch == 1
    assert rows(ran, "what_if", 1) == rows(ran, "counts", 1)
    report = ran.run("%stream step what_if -o report")
    assert (report.epoch, report.stopped) == (2, "done")
    assert ran.names["report"] is report
    assert rows(ran, "what_if", 2) == rows(ran, "counts", 2)
    key = rows(ran, "counts", 3)[0][0]
    report = ran.run(f"%stream step what_if --key k={key}")
    assert (report.epoch, report.stopped) in {(3, "breakpoint"), (3, "end")}
    assert rows(ran, "what_if", 3) == rows(ran, "counts", 3)
    assert ran.run("%stream step what_if").stopped == "end"
    ran.run("%stream back what_if --epochs 1 -o back")
    assert isinstance(ran.names["back"], Fork)
    assert "what_if_2 is a branch of what_if at epoch 2." in ran.printed
    assert ran.run('%stream step what_if_2 --until "count > 0"').stopped == "breakpoint"
    assert rows(ran, "what_if_2", 3) == rows(ran, "counts", 3)
    ran.run("%stream back what_if_2 --epochs 2 --as earlier")
    assert "earlier is a branch of counts at epoch 1." in ran.printed
    assert {fork.name for fork in ss.open_store(ran.notebook.store_path())["counts"].forks()} == {"what_if", "earlier"}


@pytest.mark.exhaustive
def test_query_names_the_code(ran: Shell) -> None:
    """For a query that the notebook did not start, --query names a function or a streaming DataFrame."""
    ran.notebook.running.clear()
    ran.run("%stream fork counts --at 1 --as other")
    message = ran.fails("%stream step other", QueryError)
    assert "--query build_query" in message
    assert "nothing" in ran.fails("%stream step other --query nothing", InvalidArgumentError)
    ran.run("number = 3")
    assert "of type int" in ran.fails("%stream step other --query number", InvalidArgumentError)
    assert ran.run("%stream step other --query counted").epoch == 2
    ran.run("def build(): return counted")
    ran.run("%stream fork counts --at 1 --as mine --query build")
    assert ran.run("%stream step mine --epochs 2").epoch == 3


def test_invalid_lines_create_nothing(ran: Shell) -> None:
    """Taken and unknown names, missing epochs, and steps of the original are refused."""
    ran.fails("%stream fork count --at 1 --as a", UnknownQueryError)
    ran.fails("%stream fork counts --at 1 --as counts", NameTakenError)
    ran.fails("%stream fork counts --at 1 --as ../a", InvalidNameError)
    assert "--as" in ran.fails("%stream fork counts --at 1", InvalidArgumentError)
    ran.fails("%stream fork counts --at 99 --as a", EpochGoneError)
    assert "not a fork" in ran.fails("%stream step counts", ForkError)
    assert "--as NEW" in ran.fails("%stream back counts", InvalidArgumentError)
    assert "expected files, rows" in ran.fails("%stream fork counts --as a --verify all", InvalidArgumentError)
    ran.run("%stream fork counts --at 1 --as a --verify rows -o fork")
    assert isinstance(ran.names["fork"], Fork)
    ran.fails('%stream step a --until "n > 1" --key k=a', InvalidArgumentError)
    ran.fails("%stream back a --epochs 5", InvalidArgumentError)
    ran.fails("%stream replay counts --epochs 3..2 --as b", InvalidArgumentError)
    assert "--epochs A..B" in ran.fails("%stream replay counts --as b", InvalidArgumentError)
    for verb in ("replay counts --as b", "audit counts"):
        assert "both ends included" in ran.fails(f"%stream {verb} --epochs 3..2", InvalidArgumentError)
    assert ss.open_store(ran.notebook.store_path()).queries() == ["a", "counts"]


@pytest.mark.slow
def test_a_step_that_is_interrupted_while_it_starts_leaves_no_query(
    ran: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java starts the query all the same; it is stopped, and the next step can run."""
    ran.run("%stream fork counts --at 0 --as interrupted")
    start = DataStreamWriter.start

    def interrupted(writer: DataStreamWriter) -> None:
        start(writer)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(DataStreamWriter, "start", interrupted)
        ran.fails("%stream step interrupted", KeyboardInterrupt)
    assert not ran.names["counted"].sparkSession.streams.active
    assert ran.run("%stream step interrupted").epoch == 1


@pytest.mark.slow
def test_an_interrupted_step_leaves_a_complete_epoch(ran: Shell) -> None:
    """The interrupt is reported in one line, and the next step continues from that epoch."""
    ran.run("%stream fork counts --at 0 --as what_if")
    timer = threading.Timer(0.3, signal.raise_signal, [signal.SIGINT])
    timer.start()
    ran.fails("%stream step what_if --epochs 3", KeyboardInterrupt)
    timer.join()
    assert "what_if is at its last complete epoch." in ran.printed
    report = ran.run("%stream step what_if --epochs 3")
    assert report.epoch == 3
    assert rows(ran, "what_if", 3) == rows(ran, "counts", 3)


@pytest.mark.slow
def test_a_debug_session_ends_with_the_extension(ran: Shell) -> None:
    """The session is closed with the notebook. Its branches are in the query's store."""
    session = ran.run("%stream debug counts --at 1 -o session")
    assert isinstance(session, DebugSession)
    assert ran.names["session"] is session
    assert session.step().epoch == 2
    assert rows(ran, "debug_counts", 2) == rows(ran, "counts", 2)
    assert ran.notebook.close() == []
    with pytest.raises(InvalidArgumentError, match="closed"):
        session.step()


def test_each_verb_has_help(bare_shell: Shell) -> None:
    """The magic's help lists all verbs, and a verb's help its arguments."""
    bare_shell.run("%stream --help")
    assert all(f"  {verb} " in bare_shell.printed for verb in VERBS)
    for verb in VERBS:
        bare_shell.run(f"%stream {verb} --help")
        assert f"%stream {verb}" in bare_shell.printed
        assert "NAME" in bare_shell.printed


def test_names_epochs_columns_and_code_are_completed(bare_shell: Shell, tmp_path: Path) -> None:
    """They are taken from the store in use and the user's variables."""
    counting(tmp_path / "store", "delays", {0: {"a": 1}, 1: {"a": 2}})
    counting(tmp_path / "store", "what_if", {1: {"a": 2}}, ("delays", 1))
    bare_shell.run(f"%config StreamState.store = {str(tmp_path / 'store')!r}")
    bare_shell.run("def build_query(): pass")
    assert bare_shell.completions("%stream fork d|") == ["delays"]
    assert bare_shell.completions("%stream step what|") == ["what_if"]
    assert {"0", "1"} <= {*bare_shell.completions("%stream fork delays --at |")}
    assert "count" in bare_shell.completions('%stream step what_if --until "c|')
    assert bare_shell.completions("%stream step what_if --key |") == ["key="]
    assert "build_query" in bare_shell.completions("%stream step what_if --query |")
    assert "--partitions" in bare_shell.completions("%stream fork delays --p|")
    assert "fork" in bare_shell.completions("%stream fo|")
