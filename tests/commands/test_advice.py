"""The advice of an error can be typed where the error appears."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import synthetic
from notebook_shell import Shell, bare_shell  # noqa: F401 (a fixture)

import streamstate as ss
from streamstate.command_line import main
from streamstate.errors import InvalidArgumentError, StreamStateError, worded, wording

PYTHON = re.compile(r"\bss\.|streamstate\.\w+|\w+=[…'\[{(TFN]|\w\(|tzinfo|build_query|<\w|\bTokenType")
"""Calls, keyword arguments and the text of objects."""

FAILING = """
diff STORE q a b
diff STORE q 0 99
show STORE q --at abc
show STORE q --at 2026-01-01
sql STORE "SELECT FROM WHERE"
sql STORE "SELECT 1 +"
sql STORE "SELECT FROM"
sql STORE "FROM q" --at abc
retain STORE q --since abc
retain STORE q --since 0d
retain STORE q --since 2026-01-01
export STORE q --to NEW --epochs abc
export STORE q --to NEW --epochs 99
export STORE two --to NEW
restore STORE q --at abc --to NEW
restore STORE q --to NEW --files x
ls NEW
serve NEW
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with ``q``, whose checkpoint is gone."""
    path = tmp_path_factory.mktemp("advice") / "store"
    synthetic.write(path, [{"a": 1}, {"a": 3, "b": 2}])
    return path


def status(line: str) -> object:
    """The exit status of a command; 2 if its arguments are wrong."""
    try:
        return main(shlex.split(line))
    except SystemExit as ended:
        return ended.code


@pytest.mark.parametrize("line", FAILING.strip().splitlines())
def test_a_command_advises_in_the_words_of_the_terminal(
    line: str, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No call, no keyword argument, and no object of Python's."""
    assert status(line.replace("STORE", str(store)).replace("NEW", str(tmp_path / "new"))) in {1, 2}
    assert PYTHON.findall(capsys.readouterr().err.replace(str(store), "").replace(str(tmp_path), "")) == []


def test_python_advises_in_its_own_words(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also after a command and a magic have failed in the same process."""
    assert main(["diff", str(store), "q", "a", "b"]) == 1
    assert "timestamp" not in capsys.readouterr().err
    with pytest.raises(InvalidArgumentError, match="use at\\(timestamp=…\\)"):
        ss.open_store(store)["q"].at("a")


def test_a_magic_advises_in_its_words(bare_shell: Shell, store: Path) -> None:
    """The cell's own code is not concerned."""
    message = bare_shell.fails(f"%%statesql --store {store}\nSELECT getenv('HOME')", StreamStateError)
    assert "--frame" in message
    assert "frames=" not in message
    bare_shell.names["store"] = ss.open_store(store)
    assert "frames=" in bare_shell.fails("store.sql(\"SELECT getenv('HOME')\")", StreamStateError)


def test_where_there_are_no_other_words_those_of_python_are_used() -> None:
    """The most fitting ones come first; they may be empty."""
    with wording("command"):
        assert [worded("p"), worded("p", line="l"), worded("p", line="l", command="c"), worded("p", command="")] == [
            "p",
            "l",
            "c",
            "",
        ]
    assert worded("p", line="l") == "p"
