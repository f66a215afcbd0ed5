"""``%snapshots NAME retain | compact | export``: retention, compaction and exports from a notebook."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable
from notebook_shell import Shell, bare_shell, shown_at_once  # noqa: F401 (fixtures)
from synthetic import State, copy_of, write

import streamstate as ss
from streamstate.errors import InvalidArgumentError, NotAnExportError, StreamStateError, UnknownQueryError
from streamstate.magics.stream_cell import STREAM_CELL
from streamstate.reports import RetentionReport

STATES: list[State | None] = [{"a": epoch, f"k{epoch}": 1} for epoch in range(12)]


@pytest.fixture
def shell(bare_shell: Shell, tmp_path: Path) -> Shell:
    """A shell that uses a store with the query ``q``, with twelve epochs."""
    copy_of(tmp_path / "s", STATES)
    bare_shell.run(f"%config StreamState.store = {str(tmp_path / 's')!r}")
    return bare_shell


def test_keep_drops_the_other_epochs(shell: Shell, tmp_path: Path) -> None:
    """The table has the numbers of dropped and kept epochs, and -o assigns the report. A dry run changes nothing."""
    dry_run = shell.run("%snapshots q retain --last 3 --one-in 5 --dry-run")
    assert next(iter(dry_run))["would drop"] == 7
    assert len(shell.run("%snapshots q")) == 12
    table = shell.run("%snapshots q retain --last 3 --one-in 5 -o report")
    assert (next(iter(table))["dropped"], next(iter(table))["kept"]) == (7, 5)
    assert isinstance(shell.names["report"], RetentionReport)
    assert shell.run("%snapshots q")["epoch"].tolist() == [0, 5, 9, 10, 11]
    assert shell.run("%snapshots")[["epochs", "gaps"]].iloc[0].tolist() == [5, 0]
    assert "dropped by retention" in shell.fails("%state q at 3", LookupError)


def test_steps_are_shown(shell: Shell, shown_at_once: list[str]) -> None:
    """Slow work reports its steps."""
    shell.run("%snapshots q retain --last 3")
    assert "writing the keyframe of op0 at epoch 9" in shown_at_once
    assert "rewriting op0" in shown_at_once


def test_quick_work_shows_only_its_result(shell: Shell) -> None:
    """No progress is printed."""
    shell.run("%snapshots q retain --last 3")
    assert "keyframe" not in shell.printed


def test_the_name_is_optional(shell: Shell) -> None:
    """It can be omitted if the store has only one query."""
    assert next(iter(shell.run("%snapshots retain --last 2")))["kept"] == 2


def test_compact_reports_files_and_bytes(shell: Shell, tmp_path: Path) -> None:
    """The numbers before and after are given for each table."""
    write(tmp_path / "many", [{"a": epoch} for epoch in range(70)])
    table = shell.run(f"%snapshots q compact --store {tmp_path / 'many'} -o done")
    rows = {row["table"]: row for row in table}
    assert (rows["op0"]["files before"], rows["op0"]["files after"]) == (70, 1)
    assert rows["_epochs"]["files after"] == 1
    assert rows["op0"]["MB after"] < rows["op0"]["MB before"]
    assert shell.names["done"]["table"].tolist() == ["_epochs", "op0"]
    assert [table.files_before for table in ss.open_store(tmp_path / "many")["q"].compact()] == [1, 1]
    assert len(shell.run("%snapshots q")) == 70


def test_export_writes_a_table(shell: Shell, tmp_path: Path) -> None:
    """The table has one version per selected epoch. A second export writes nothing."""
    table = shell.run("%snapshots q export --to out --epochs 1,3..5 -o report")
    assert next(iter(table))["written now"] == 4
    assert shell.names["report"].epochs == (1, 3, 4, 5)
    assert DeltaTable(tmp_path / "out", version=2).to_pyarrow_table().num_rows == 2
    assert next(iter(shell.run("%snapshots q export --to out --epochs 1,3..5")))["written now"] == 0
    assert "holds the epochs 1, 3, 4, 5" in shell.fails("%snapshots q export --to out", NotAnExportError)


@pytest.mark.parametrize(
    ("line", "error", "expected"),
    [
        ("%snapshots q retain", InvalidArgumentError, "--last 100, --since 2d and --one-in 10"),
        ("%snapshots q retain --last 0", InvalidArgumentError, "at least 1"),
        ("%snapshots q retain --since soon", InvalidArgumentError, "a duration such as 2d"),
        ("%snapshots q retain --lst 3", InvalidArgumentError, "Did you mean --last?"),
        ("%snapshots p retain --last 3", UnknownQueryError, "q"),
        ("%snapshots q export", InvalidArgumentError, "--to"),
        ("%snapshots q export --to out --epochs x", InvalidArgumentError, "3,5,10..20"),
        ("%snapshots q drop", InvalidArgumentError, "Verbs: retain, compact, export"),
        ("%snapshots q compakt", InvalidArgumentError, "Did you mean compact?"),
    ],
)
def test_an_invalid_line_drops_nothing(shell: Shell, line: str, error: type[StreamStateError], expected: str) -> None:
    """The error names the choices in at most three lines."""
    message = shell.fails(line, error)
    assert expected in message
    assert len(message.splitlines()) <= 3
    assert len(shell.run("%snapshots q")) == 12


def test_help_lists_verbs_and_options(shell: Shell) -> None:
    """``--help`` lists the verbs of the magic, or the options of a verb."""
    shell.run("%snapshots --help")
    assert all(verb in shell.printed for verb in ("retain", "compact", "export"))
    shell.run("%snapshots q retain --help")
    assert "--dry-run" in shell.printed
    assert len(shell.run("%snapshots q")) == 12


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("%snapshots q |", ["retain", "compact", "export"]),
        ("%snapshots q re|", ["retain"]),
        ("%snapshots q retain --o|", ["--one-in"]),
        ("%snapshots retain --la|", ["--last"]),
        ("%snapshots q export --to out --ep|", ["--epochs"]),
        ("%snapshots |", ["q"]),
    ],
)
def test_verbs_and_options_are_completed(shell: Shell, cell: str, expected: list[str]) -> None:
    """Verbs are completed after the name, and options after the verb."""
    assert shell.completions(cell) == expected


@pytest.mark.parametrize(("text", "every"), [("3", 3), ("10s", "10s"), ("2m", "2m"), ("500ms", "500ms")])
def test_every_is_a_number_of_epochs_or_a_duration(text: str, every: int | str) -> None:
    """Numbers are parsed as integers, durations are kept as text."""
    assert STREAM_CELL.parser.parse_line(f"delays --every {text}").every == every


@pytest.mark.parametrize("text", ["0", "0s", "soon", "1.5", "-3s"])
def test_an_invalid_every_is_refused(text: str) -> None:
    """The parser raises the error."""
    with pytest.raises(InvalidArgumentError, match=r"at least 1|expected one argument"):
        STREAM_CELL.parser.parse_line(f"delays --every {text}")
