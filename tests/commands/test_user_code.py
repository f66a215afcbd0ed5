"""Code that a command line names: its errors come with the user's own line, and without a traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from streamstate.command_line import main

RAISES = """
def helper():
    return open("/nowhere/at/all")

def build():
    return helper()
"""
CODES = {
    "an argument": (
        "def build(spark): pass",
        "job.py:build cannot be called without arguments: missing a required argument: 'spark'.",
        "It has to make everything",
    ),
    "raises": (
        RAISES,
        "job.py:build failed: FileNotFoundError: [Errno 2] No such file or directory",
        'job.py, line 3, in helper: return open("/nowhere/at/all")',
    ),
    "missing module": (
        "import nowhere_at_all",
        "job.py cannot be imported: ModuleNotFoundError: No module named 'nowhere_at_all'",
        "job.py, line 1, in <module>: import nowhere_at_all",
    ),
    "syntax": (
        "def build(:",
        "job.py cannot be imported: SyntaxError: invalid syntax",
        "job.py, line 1: def build(:",
    ),
    "no frame": (
        "def build(): return 7",
        "job.py:build returned 7.",
        "It has to return the query's streaming DataFrame",
    ),
    "another function": ("def other(): pass", "job.py has no function build.", "It has: other."),
    "no function": ("build = 7", "job.py has no function build.", "It has: none."),
}


COMMANDS = ("check CHECKPOINT", "migrate CHECKPOINT", "restore STORE counts --to new --code")
WITHOUT_SPARK = [
    pytest.param(line, code, id=f"{line.split()[0]}, {code}")
    for line in COMMANDS
    for code in CODES
    if not (line.startswith("check") and code in ("raises", "no frame"))  # check starts Spark before it runs the code
]


@pytest.mark.parametrize(("line", "code"), WITHOUT_SPARK)
def test_errors_of_user_code_name_its_line(
    line: str,
    code: str,
    counted: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In two lines, for every command that runs such code."""
    text, problem, place = CODES[code]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.py").write_text(text, encoding="utf-8")
    line = line.replace("CHECKPOINT", str(counted[0])).replace("STORE", str(counted[1]))
    assert main([*line.split(), "job.py:build"]) == 1
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith(f"streamstate: {problem}")
    assert place in second


def test_a_file_may_have_the_name_of_a_module(tmp_path: Path) -> None:
    """Neither it nor what lies beside it is taken for the module by anybody else."""
    (tmp_path / "json.py").write_text("import beside\n\ndef build(): return beside.VALUE")
    (tmp_path / "beside.py").write_text("VALUE = 7")
    (tmp_path / "fractions.py").write_text("raise ImportError('not the one of Python')")
    program = (
        "import sys, importlib\n"
        "from streamstate.command_line.user_code import loaded\n"
        f"build = loaded({str(tmp_path / 'json.py')!r}, 'build')\n"
        "sys.modules.pop('fractions', None)\n"
        "import json, fractions\n"
        "print(build.__wrapped__(), json.dumps(1), fractions.Fraction(1, 2))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["7", "1", "1/2"]
