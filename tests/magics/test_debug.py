"""``%stream fork``, ``step``, ``back``, ``replay`` and ``debug``, as a notebook uses them."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import pytest
from branch_stores import counting
from conftest import Source, counts, letters
from notebook_shell import Shell, bare_shell, shell  # noqa: F401 (fixtures)

import streamstate as ss
from streamstate.debugger.session import DebugSession
from streamstate.snapshots.errors import (
    EpochGoneError,
    ForkError,
    InvalidArgumentError,
    InvalidNameError,
    NameTakenError,
    QueryError,
    UnknownQueryError,
)

VERBS = ("fork", "step", "back", "replay", "debug")


@pytest.fixture
def ran(shell: Shell, source: Source) -> Shell:
    """A query called counts that has run four epochs."""
    for epoch in range(4):
        source.add(letters(epoch))
    shell.names["counted"] = counts(source)
    shell.run("%%stream counts --trigger available-now\ncounted").wait(timeout=120)
    return shell


def rows(shell: Shell, query: str, epoch: int) -> list[tuple[object, ...]]:
    """The state of a query at an epoch."""
    table = ss.open_store(shell.notebook.store_path())[query].at(epoch).table()
    return sorted(tuple(row) for row in table.to_pandas().astype(object).itertuples(index=False))


def test_a_fork_is_stepped_and_taken_back(ran: Shell) -> None:
    """Each epoch is the original's; a fork is a query like any other; back is a new branch, and nothing is lost."""
    fork = ran.run("%stream fork counts --at 1 --as what_if -o fork")
    assert "what_if stands where counts stood after epoch 1." in ran.said
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
    ran.run("%stream back what_if --epochs 1")
    assert "what_if_2 stands at epoch 2, a branch of what_if." in ran.said
    assert ran.run('%stream step what_if_2 --until "count > 0"').stopped == "breakpoint"
    assert rows(ran, "what_if_2", 3) == rows(ran, "counts", 3)
    ran.run("%stream back what_if_2 --epochs 2 --as earlier")
    assert "earlier stands at epoch 1, a branch of counts." in ran.said
    assert {one.name for one in ss.open_store(ran.notebook.store_path())["counts"].forks()} == {"what_if", "earlier"}


def test_code_is_named_where_it_is_not_known(ran: Shell) -> None:
    """A query of the store alone has none here; a function or a streaming DataFrame is named instead."""
    ran.notebook.running.clear()
    ran.run("%stream fork counts --at 1 --as other")
    message = ran.fails("%stream step other", QueryError)
    assert "--query build_query" in message
    assert "nothing" in ran.fails("%stream step other --query nothing", InvalidArgumentError)
    ran.run("number = 3")
    assert "a int" in ran.fails("%stream step other --query number", InvalidArgumentError)
    assert ran.run("%stream step other --query counted").epoch == 2
    ran.run("def build(): return counted")
    ran.run("%stream fork counts --at 1 --as mine --query build")
    assert ran.run("%stream step mine --epochs 2").epoch == 3


def test_what_cannot_be_meant_is_said_before_anything_is_made(ran: Shell) -> None:
    """Names that are taken or unknown, epochs that were never committed, the original itself."""
    ran.fails("%stream fork count --at 1 --as a", UnknownQueryError)
    ran.fails("%stream fork counts --at 1 --as counts", NameTakenError)
    ran.fails("%stream fork counts --at 1 --as ../a", InvalidNameError)
    assert "--as" in ran.fails("%stream fork counts --at 1", InvalidArgumentError)
    ran.fails("%stream fork counts --at 99 --as a", EpochGoneError)
    assert "no fork" in ran.fails("%stream step counts", ForkError)
    assert "--as NEW" in ran.fails("%stream back counts", InvalidArgumentError)
    ran.run("%stream fork counts --at 1 --as a")
    ran.fails('%stream step a --until "n > 1" --key k=a', InvalidArgumentError)
    ran.fails("%stream back a --epochs 5", InvalidArgumentError)
    ran.fails("%stream replay counts --from 3 --to 2 --as b", InvalidArgumentError)
    assert ss.open_store(ran.notebook.store_path()).queries() == ["a", "counts"]


def test_an_interrupted_step_stands_at_a_whole_epoch(ran: Shell) -> None:
    """And says so in one line."""
    ran.run("%stream fork counts --at 0 --as what_if")
    timer = threading.Timer(0.3, signal.raise_signal, [signal.SIGINT])
    timer.start()
    ran.fails("%stream step what_if --epochs 3", KeyboardInterrupt)
    timer.join()
    assert "what_if stands at its last whole epoch." in ran.said
    left = ran.run("%stream step what_if --epochs 3")
    assert left.epoch == 3
    assert rows(ran, "what_if", 3) == rows(ran, "counts", 3)


def test_a_session_is_begun_and_ends_with_the_magics(ran: Shell) -> None:
    """Its branches go into the store of the query, and are forks like others."""
    session = ran.run("%stream debug counts --at 1 -o session")
    assert isinstance(session, DebugSession)
    assert ran.names["session"] is session
    assert session.step().epoch == 2
    assert rows(ran, "debug_counts", 2) == rows(ran, "counts", 2)
    assert ran.notebook.close() == []
    with pytest.raises(InvalidArgumentError, match="closed"):
        session.step()


def test_each_verb_explains_itself(bare_shell: Shell) -> None:
    """What it does and what each argument is for; the list of verbs names it."""
    bare_shell.run("%stream --help")
    assert all(f"  {verb} " in bare_shell.said for verb in VERBS)
    for verb in VERBS:
        bare_shell.run(f"%stream {verb} --help")
        assert f"%stream {verb}" in bare_shell.said
        assert "NAME" in bare_shell.said


def test_names_epochs_columns_and_code_are_completed(bare_shell: Shell, tmp_path: Path) -> None:
    """Of the store that is read, with options that are still missing."""
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
