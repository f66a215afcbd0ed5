"""``%snapshots NAME keep | compact | export``: retention, merging and exports from a notebook."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable
from notebook_shell import Shell, bare_shell, shown_at_once  # noqa: F401 (fixtures)
from synthetic import State, write

import streamstate as ss
from streamstate.magics.stream_cell import STREAM_CELL
from streamstate.snapshots.errors import InvalidArgumentError, NotAnExportError, StreamStateError, UnknownQueryError

STATES: list[State | None] = [{"a": epoch, f"k{epoch}": 1} for epoch in range(12)]


@pytest.fixture
def shell(bare_shell: Shell, tmp_path: Path) -> Shell:
    """A shell that uses a store with one query ``q`` of twelve epochs."""
    write(tmp_path / "s", STATES)
    bare_shell.run(f"%config StreamState.store = {str(tmp_path / 's')!r}")
    return bare_shell


def test_keep_drops_what_nothing_keeps(shell: Shell, tmp_path: Path) -> None:
    """The table says how many go and stay, the variable holds the report; a dry run changes nothing."""
    tried = shell.run("%snapshots q keep --last 3 --every 5 --dry-run")
    assert next(iter(tried))["would drop"] == 7
    assert len(shell.run("%snapshots q")) == 12
    done = shell.run("%snapshots q keep --last 3 --every 5 -o report")
    assert (next(iter(done))["dropped"], next(iter(done))["stay"]) == (7, 5)
    assert isinstance(shell.names["report"], ss.RetentionReport)
    assert shell.run("%snapshots q")["epoch"].tolist() == [0, 5, 9, 10, 11]
    assert shell.run("%snapshots")[["epochs", "gaps"]].iloc[0].tolist() == [5, 0]
    assert "dropped by retention" in shell.fails("%state q --at 3", LookupError)


def test_steps_are_shown(shell: Shell, shown_at_once: list[str]) -> None:
    """Long work says what it does."""
    shell.run("%snapshots q keep --last 3")
    assert "writing the keyframe of op0 at epoch 9" in shown_at_once
    assert "rewriting op0" in shown_at_once


def test_quick_work_shows_nothing_but_its_result(shell: Shell) -> None:
    """A bar that comes and goes at once is noise."""
    shell.run("%snapshots q keep --last 3")
    assert "keyframe" not in shell.said


def test_the_name_may_be_left_out_for_one_query(shell: Shell) -> None:
    """Where the store has one."""
    assert next(iter(shell.run("%snapshots keep --last 2")))["stay"] == 2


def test_compact_says_what_it_did(shell: Shell, tmp_path: Path) -> None:
    """Files and bytes of each table, before and after."""
    write(tmp_path / "many", [{"a": epoch} for epoch in range(70)])
    table = shell.run(f"%snapshots q compact --store {tmp_path / 'many'} -o done")
    rows = {row["table"]: row for row in table}
    assert (rows["op0"]["files before"], rows["op0"]["files after"]) == (70, 1)
    assert rows["_epochs"]["files after"] == 1
    assert rows["op0"]["MB after"] < rows["op0"]["MB before"]
    assert shell.names["done"]["table"].tolist() == ["_epochs", "op0"]
    assert len(shell.run("%snapshots q")) == 70


def test_export_writes_a_table(shell: Shell, tmp_path: Path) -> None:
    """The chosen epochs as versions; again it writes nothing."""
    table = shell.run("%snapshots q export out --epochs 1,3:5 -o report")
    assert next(iter(table))["written now"] == 4
    assert shell.names["report"].epochs == (1, 3, 4, 5)
    assert DeltaTable(tmp_path / "out", version=2).to_pyarrow_table().num_rows == 2
    assert next(iter(shell.run("%snapshots q export out --epochs 1,3:5")))["written now"] == 0
    assert "holds the epochs 1, 3, 4, 5" in shell.fails("%snapshots q export out", NotAnExportError)


@pytest.mark.parametrize(
    ("line", "error", "says"),
    [
        ("%snapshots q keep", InvalidArgumentError, "--last 100, --since 2d, --every 10"),
        ("%snapshots q keep --last 0", InvalidArgumentError, "from 1 on"),
        ("%snapshots q keep --since soon", InvalidArgumentError, "a span such as 2d"),
        ("%snapshots q keep --lst 3", InvalidArgumentError, "Did you mean --last?"),
        ("%snapshots p keep --last 3", UnknownQueryError, "q"),
        ("%snapshots q export", InvalidArgumentError, "PATH"),
        ("%snapshots q export out --epochs x", InvalidArgumentError, "3,5,10:20"),
        ("%snapshots q drop", InvalidArgumentError, "Verbs: keep, compact, export"),
        ("%snapshots q compakt", InvalidArgumentError, "Did you mean compact?"),
    ],
)
def test_a_line_that_cannot_be_meant(shell: Shell, line: str, error: type[StreamStateError], says: str) -> None:
    """Two or three plain lines that name the choices; nothing is dropped."""
    message = shell.fails(line, error)
    assert says in message
    assert len(message.splitlines()) <= 3
    assert len(shell.run("%snapshots q")) == 12


def test_help_of_each_verb(shell: Shell) -> None:
    """``--help`` of the magic lists the verbs, that of a verb its options."""
    shell.run("%snapshots --help")
    assert all(verb in shell.said for verb in ("keep", "compact", "export"))
    shell.run("%snapshots q keep --help")
    assert "--dry-run" in shell.said
    assert len(shell.run("%snapshots q")) == 12


@pytest.mark.parametrize(
    ("cell", "offered"),
    [
        ("%snapshots q |", ["keep", "compact", "export"]),
        ("%snapshots q ke|", ["keep"]),
        ("%snapshots q keep --e|", ["--every"]),
        ("%snapshots keep --la|", ["--last"]),
        ("%snapshots q export out --ep|", ["--epochs"]),
        ("%snapshots |", ["q"]),
    ],
)
def test_tab_offers(shell: Shell, cell: str, offered: list[str]) -> None:
    """Verbs after the name, then the verb's options."""
    assert shell.completions(cell) == offered


@pytest.mark.parametrize(("text", "every"), [("3", 3), ("10s", "10s"), ("2m", "2m"), ("500ms", "500ms")])
def test_a_stream_is_captured_every_so_many_epochs_or_seconds(text: str, every: int | str) -> None:
    """``--every`` takes a number or a span of time."""
    assert STREAM_CELL.parser.parse_line(f"delays --every {text}").every == every


@pytest.mark.parametrize("text", ["0", "0s", "soon", "1.5", "-3s"])
def test_a_pace_that_cannot_be_meant(text: str) -> None:
    """Is refused before anything starts."""
    with pytest.raises(InvalidArgumentError, match=r"from 1 on|no time at all|expected one argument"):
        STREAM_CELL.parser.parse_line(f"delays --every {text}")
