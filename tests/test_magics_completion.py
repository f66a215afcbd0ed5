from __future__ import annotations

from pathlib import Path

import pytest
from notebook_shell import Shell, bare_shell  # noqa: F401 (a fixture)


@pytest.fixture
def reader(bare_shell: Shell, counted: tuple[Path, Path]) -> Shell:
    """A shell that reads the store of ``counts``, five epochs of it."""
    bare_shell.run(f"%config StreamState.store = {str(counted[1])!r}")
    return bare_shell


@pytest.mark.parametrize(
    ("cell", "offered"),
    [
        ("%state counts --as|", ["--as-of"]),
        ("x = %state counts --hi|", ["--history"]),
        ("%state co|", ["counts"]),
        ("%state counts.|", ["counts.op0"]),
        ("%snapshots c|", ["counts"]),
        ("%state counts --at |", ["4", "3", "2", "1", "0"]),
        ("%state counts --diff 1 |", ["4", "3", "2", "1", "0"]),
        ("%state counts --top 3 --by |", ["k", "count", "sum", "count_2", "max"]),
        ("%state counts --key |", ["k="]),
        ("%stream st|", ["status", "stop"]),
        ("%stream wait --t|", ["--timeout"]),
        ("%%stream x --mode |\nframe", ["update", "append", "complete"]),
        ("%%stream x --tr|\nframe", ["--trigger"]),
        ("%%statesql --engine |\nSELECT 1", ["duckdb", "spark"]),
        (
            "%%statesql\nSELECT * FROM counts.|",
            ["counts.op0", "counts.history", "counts.changes", "counts.op0.history", "counts.op0.changes"],
        ),
        ("%%statesql\nSELECT * FROM counts.hi|", ["counts.history"]),
        ("%%statesql\nSELECT * FROM co|", ["counts"]),
        ("%%statesql\nSELECT ma| FROM counts", ["max"]),
        ("%%statesql\n-- of counts\nSELECT *\nFROM counts WHERE su|", ["sum"]),
    ],
)
def test_tab_offers(reader: Shell, cell: str, offered: list[str]) -> None:
    """Options, verbs, choices, names, tables, columns and epochs, in the middle of a cell too."""
    assert reader.completions(cell) == offered


def test_tab_offers_every_verb_and_no_more(reader: Shell) -> None:
    """The first word after %stream."""
    assert reader.completions("%stream |") == ["list", "status", "wait", "stop", "restart", "attach"]


def test_tab_in_the_kernels_old_interface(reader: Shell) -> None:
    """``shell.complete``, which terminals and older kernels use."""
    line = "%state counts --at "
    with pytest.warns(PendingDeprecationWarning):
        found = reader.ipython.complete("", line, len(line))[1]
    assert found == ["4", "3", "2", "1", "0"]


def test_tab_without_a_store_offers_options_only(bare_shell: Shell) -> None:
    """A store that is not there yet is no reason to fail."""
    assert bare_shell.completions("%state --a|") == ["--at", "--as-of"]
    assert "counts" not in bare_shell.completions("%state co|")


def test_python_is_completed_as_ever(reader: Shell) -> None:
    """Cells without our magics are left to IPython."""
    reader.run("counters = 1")
    assert "counters" in reader.completions("counte|")
    assert "counters" in reader.completions("%%stream x\ncounte|")


def test_unloading_takes_completion_away(reader: Shell) -> None:
    """No names are offered for a magic that is gone."""
    from streamstate.extension import unload

    unload(reader.ipython)
    assert "--as-of" not in reader.completions("%state counts --as|")
