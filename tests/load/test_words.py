"""The magic and the command are thin shells over the same call."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from notebook_shell import Shell, bare_shell  # noqa: F401 (a fixture)

from load.stores import of_states
from streamstate.command_line import main
from streamstate.reports import Load
from streamstate.widgets import LoadView


@pytest.fixture
def store(tmp_path: Path) -> str:
    """A store with thirty epochs, in each of which the state grows by ten rows."""
    of_states(tmp_path, range(100, 400, 10))
    return str(tmp_path)


def test_the_command_lists_the_epochs_and_the_forecast(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A table for people, with what is not known below it."""
    assert main(["load", store, "q", "--last", "2", "--state", "490"]) == 0
    printed = capsys.readouterr().out
    assert "state_rows" in printed
    assert "At epoch 29 the state is 390 rows, and reaches 490 rows at" in printed
    assert len([line for line in printed.splitlines() if line.lstrip().startswith(("28", "29"))]) == 2


def test_the_command_has_json(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    """An object for each epoch; with a limit, the forecast."""
    assert main(["load", store, "q", "--last", "3", "--json"]) == 0
    found: list[dict[str, Any]] = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["state_rows"] for row in found] == [370, 380, 390]
    assert main(["load", store, "q", "--state", "490", "--json"]) == 0
    (forecast,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert forecast["what"] == "state rows"
    assert forecast["reached"] == "2026-01-01T00:06:30+00:00"


def test_a_wrong_limit_is_refused_before_anything_is_read(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The message says what would be right."""
    with pytest.raises(SystemExit):
        main(["load", store, "q", "--state", "much"])
    assert "expected a size such as 10GB, or a number of rows" in capsys.readouterr().err


def test_the_magic_shows_the_view_and_keeps_the_load(store: str, bare_shell: Shell) -> None:
    """With ``-o`` the numbers, as other verbs do."""
    view = bare_shell.run(f"%state q load --state 490 --store {store}")
    assert isinstance(view, LoadView)
    assert "reaches 490 rows at" in repr(view)
    view.close()
    kept = bare_shell.run(f"%state q load --store {store} -o found")
    assert isinstance(kept, Load)
