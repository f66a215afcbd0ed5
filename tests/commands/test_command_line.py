"""All commands: help, exit statuses, output for pipes, quick starts."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import synthetic

from streamstate.command_line import COMMANDS, main, parser
from streamstate.command_line.command import Command
from streamstate.command_line.output import plain, print_rows


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with one query."""
    path = tmp_path_factory.mktemp("commands") / "store"
    synthetic.write(path, [{"a": 1}, {"a": 3, "b": 2}])
    return path


def started(*arguments: str | Path) -> subprocess.Popen[str]:
    """The command in a process of its own."""
    command = [sys.executable, "-m", "streamstate", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_command_has_help_with_examples(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    """The examples are valid command lines."""
    with pytest.raises(SystemExit) as exited:
        main([command.name, "--help"])
    assert exited.value.code == 0
    text = capsys.readouterr().out
    assert " ".join(command.description.split()) in " ".join(text.split())
    examples = re.findall(r"^  streamstate (.*)$", text.partition("Examples:\n")[2], re.MULTILINE)
    assert examples
    for example in examples:
        line = re.split(r" [|<] ", example)[0]
        assert parser().parse_args(shlex.split(line)).command == command.name


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_invalid_usage_exits_with_2(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    """The usage goes to standard error."""
    with pytest.raises(SystemExit) as exited:
        main([command.name])
    assert exited.value.code == 2
    output, errors = capsys.readouterr()
    assert output == ""
    assert errors.startswith(f"usage: streamstate {command.name}")


@pytest.mark.parametrize(
    "line",
    [
        "ls {}",
        "ls {} q",
        "show {} q",
        "key {} q a=1",
        "compact {} q",
        "sql {} 'SELECT 1'",
        "diff {} q 0 1",
        "retain {} q --last 1",
        "export {} q --to x",
    ],
)
def test_an_error_is_a_few_lines_and_exits_with_1(
    line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """There is no traceback and nothing on standard output."""
    assert main(shlex.split(line.format(tmp_path / "none"))) == 1
    output, errors = capsys.readouterr()
    assert output == ""
    assert errors.startswith("streamstate: ")
    assert len(errors.splitlines()) <= 3


def test_a_reader_that_stops_early_is_no_error(store: Path) -> None:
    """As with `| head`: nothing is printed on standard error, and the status is 0."""
    with started("sql", store, "SELECT range, repeat('x', 1000) FROM range(5000)") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        errors = process.stderr.read()
    assert (process.returncode, errors) == (0, "")


def test_an_interrupt_exits_with_130(monkeypatch: pytest.MonkeyPatch, store: Path) -> None:
    """Without a traceback."""
    from streamstate import state_inspect

    def interrupted(*_arguments: object, **_options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(state_inspect, "open_store", interrupted)
    assert main(["ls", str(store)]) == 130


@pytest.mark.parametrize(
    ("line", "unused"),
    [
        ("--version", "pyarrow pandas duckdb deltalake pyspark panel IPython prometheus_client obstore"),
        ("follow --help", "pyarrow pandas duckdb deltalake pyspark panel IPython prometheus_client obstore"),
        ("ls {}", "pyspark panel IPython prometheus_client obstore"),
        ("sql {} 'FROM q'", "pyspark panel IPython prometheus_client obstore"),
        ("retain {} q --last 5", "pyspark panel IPython prometheus_client obstore"),
    ],
)
def test_a_command_loads_only_what_it_needs(line: str, unused: str, store: Path) -> None:
    """So that it starts quickly, and reads a store where no extra is installed."""
    program = f"""
    import contextlib, sys
    from streamstate.command_line import main
    with contextlib.suppress(SystemExit):
        main({shlex.split(line.format(store))})
    print(*(set({unused.split()}) & set(sys.modules)), file=sys.stderr)
    """
    ran = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True)
    assert ran.stderr.split() == []


def test_text_from_a_store_cannot_steer_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Line breaks and escape codes are written out."""
    print_rows(["a\x1b[2J"], [["b\n\x1b]0;title\x07"]], as_json=False)
    assert capsys.readouterr().out == "a\\x1b[2J\nb\\n\\x1b]0;title\\x07\n"


def test_columns_of_one_name_stay_apart_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    """An object has each name once."""
    print_rows(["n", "n", "n_2"], [[1, 2, 3]], as_json=True)
    assert capsys.readouterr().out == '{"n": 1, "n_2": 2, "n_2_2": 3}\n'


def test_values_in_json() -> None:
    """JSON has no NaN, times, bytes or keys that are not text."""
    from datetime import UTC, date, datetime
    from decimal import Decimal

    import numpy as np

    assert plain([float("nan"), float("-inf"), 1.5]) == ["NaN", "-Infinity", 1.5]
    assert plain([Decimal("1.50"), b"\x00\xff", date(2026, 1, 2)]) == ["1.50", "00ff", "2026-01-02"]
    assert plain(datetime(2026, 1, 2, tzinfo=UTC)) == "2026-01-02T00:00:00+00:00"
    assert plain({"a": {1: 2}, "b": (None, True)}) == {"a": [[1, 2]], "b": [None, True]}
    assert plain([np.int64(1), np.array([1.0, 2.0]), Decimal("0E-18")]) == [1, [1.0, 2.0], "0.000000000000000000"]
