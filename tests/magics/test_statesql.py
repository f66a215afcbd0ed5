"""``%%statesql``: the cell is SQL over the store, over the notebook's own frames, at any moment, in either engine."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from notebook_shell import Shell, bare_shell, shell  # noqa: F401 (fixtures)

import streamstate as ss
from streamstate.snapshots.errors import (
    InvalidArgumentError,
    InvalidSQLError,
    NaiveTimestampError,
    UnknownEpochError,
    UnknownNameError,
)

NAMES = pd.DataFrame({"k": ["k1", "k2"], "name": ["one", "two"]})


@pytest.fixture
def reader(bare_shell: Shell, counted: tuple[Path, Path]) -> Shell:
    """A shell that reads the store of ``counts``, five epochs of it."""
    bare_shell.run(f"%config StreamState.store = {str(counted[1])!r}")
    bare_shell.names["names"] = NAMES
    return bare_shell


def test_a_notebooks_frames_are_relations_by_their_names(reader: Shell) -> None:
    """Where no query has the name; nothing has to be declared."""
    found = reader.run("%%statesql -o kept\nSELECT name, n.k FROM counts AS n JOIN names USING (k) ORDER BY name")
    assert found["name"].tolist() == ["one", "two"]
    assert reader.names["kept"] is found


def test_a_query_goes_before_a_variable_of_its_name(reader: Shell) -> None:
    """A variable cannot come in between by accident; named as a frame, it is an error."""
    reader.names["counts"] = NAMES
    assert "max" in reader.run("%%statesql\nFROM counts").columns
    assert "would hide" in reader.fails("%%statesql --frame counts\nFROM counts", InvalidArgumentError)


def test_variables_that_are_no_frames_are_not_looked_at(reader: Shell) -> None:
    """Neither texts, which could be paths, nor anything else."""
    reader.names["secret"] = "/etc/hostname"
    assert "counts" in reader.fails("%%statesql\nFROM secret", UnknownNameError)


def test_frames_may_be_named(reader: Shell, tmp_path: Path) -> None:
    """Then a path is one too."""
    NAMES.to_csv(tmp_path / "names.csv", index=False)
    reader.names["airports"] = str(tmp_path / "names.csv")
    found = reader.run("%%statesql --frame airports --frame names\nSELECT a.name FROM airports a JOIN names USING (k)")
    assert sorted(found["name"]) == ["one", "two"]
    assert "no variable 'nope'" in reader.fails("%%statesql --frame nope\nFROM nope", InvalidArgumentError)


@pytest.mark.parametrize(("at", "epoch"), [("1", 1), ("live", 4), ("live-3", 1), ('"live - 2"', 2)])
def test_at_takes_a_number_or_the_distance_from_the_newest(reader: Shell, store: ss.Store, at: str, epoch: int) -> None:
    """It is the epoch of relations that name none."""
    found = reader.run(f"%%statesql --at {at}\nSELECT * FROM counts ORDER BY k")
    pd.testing.assert_frame_equal(found, store["counts"].at(epoch).table().to_pandas())


def test_at_takes_a_moment(reader: Shell, store: ss.Store) -> None:
    """In ISO 8601 with its zone."""
    committed = store["counts"].at(2).committed_at
    assert committed is not None
    found = reader.run(f"%%statesql --at {committed.isoformat()}\nSELECT * FROM counts ORDER BY k")
    pd.testing.assert_frame_equal(found, store["counts"].at(2).table().to_pandas())


@pytest.mark.parametrize(
    ("cell", "error", "said"),
    [
        ("%%statesql --at soon\nFROM counts", InvalidArgumentError, "live - 10"),
        ("%%statesql --at live-77\nFROM counts", UnknownEpochError, "nearest captured: 0"),
        ("%%statesql --at 2026-01-01\nFROM counts", (InvalidArgumentError, NaiveTimestampError), "no time zone"),
        ("%%statesql\nFROM '/etc/hostname'", UnknownNameError, "counts"),
        ("%%statesql\nFROM read_text('/etc/hostname')", InvalidSQLError, "not allowed"),
        ("%%statesql\nSELECT ?", InvalidArgumentError, "need values"),
    ],
)
def test_a_wrong_cell_names_what_would_be_right(reader: Shell, cell: str, error: type[Exception], said: str) -> None:
    """In a few plain lines, and the cell fails."""
    assert said in reader.fails(cell, error)
    assert "Traceback" not in reader.said


def test_histories_and_changes_are_relations(reader: Shell, store: ss.Store) -> None:
    """As in ``store.sql``."""
    found = reader.run("%%statesql\nSELECT count(*) AS n FROM counts.history WHERE _valid_to IS NULL")
    assert found["n"].tolist() == [store["counts"].live().table().count()]
    assert reader.run("%%statesql\nFROM counts.changes")["_epoch"].max() == 4


def test_spark_runs_it_as_well(shell: Shell, counted: tuple[Path, Path]) -> None:
    """In the notebook's session, with the same rows, the notebook's frames too."""
    shell.run(f"%config StreamState.store = {str(counted[1])!r}")
    shell.names["names"] = NAMES
    sql = "SELECT name, max FROM counts VERSION AS OF 2 AS c JOIN names ON c.k = names.k ORDER BY name"
    pd.testing.assert_frame_equal(
        shell.run(f"%%statesql --engine spark\n{sql}"), shell.run(f"%%statesql\n{sql}"), check_dtype=False
    )
