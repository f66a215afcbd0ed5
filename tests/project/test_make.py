"""The commands of the repository: set-up picks what runs, type checks see every file, and silence is no success."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHOSEN = sys.version_info[:2]


def program(path: Path, lines: str) -> Path:
    """A shell script that can be run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{lines}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def places(tmp_path: Path) -> Path:
    """A folder for PATH with the few tools that scripts need, and none of what they look for."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in ["cat", "id", "mktemp", "rm", "tail"]:
        (folder / tool).symlink_to(shutil.which(tool) or tool)
    return folder


def script(name: str, *arguments: str | Path, places: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script of the repository with nothing but ``places`` on PATH."""
    return subprocess.run(
        ["/bin/sh", ROOT / "scripts" / name, *arguments],
        cwd=places.parent,
        env={"PATH": str(places), "HOME": str(places.parent), **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


# The interpreter.


def test_the_first_python_that_really_runs_is_taken(places: Path) -> None:
    """A version manager's shim that runs nothing, and a version that is too old, are passed over."""
    program(places / "python3.13", "echo 'python3.13: command not found' >&2; exit 127")
    program(places / "python3.12", "exit 1")
    program(places / "python3", f'exec {sys.executable} "$@"')
    env = places.parent / "env"
    done = script("make-venv", env, places=places)
    assert done.returncode == 0, done.stderr
    assert f"({places / 'python3'})" in done.stdout
    told = "import sys; print(sys.version_info[:2])"
    assert subprocess.check_output([env / "bin" / "python", "-c", told], text=True).strip() == str(CHOSEN)
    assert script("make-venv", env, places=places).stdout == "", "an environment that works is kept"


def test_without_any_python_it_says_which_would_do(places: Path) -> None:
    """The message names the versions and how to point at one."""
    program(places / "python3", "exit 1")
    done = script("make-venv", places.parent / "env", places=places)
    assert done.returncode == 1
    assert done.stderr.startswith("No Python 3.11, 3.12 or 3.13 that runs was found on PATH.\n")
    assert "make PYTHON=" in done.stderr


def test_a_named_python_that_does_not_fit_is_refused(places: Path) -> None:
    """PYTHON=... is not silently replaced by another."""
    program(places / "python3", f'exec {sys.executable} "$@"')
    old = program(places / "python3.9", "exit 1")
    done = script("make-venv", places.parent / "env", old, places=places)
    assert done.returncode == 1
    assert done.stderr.startswith(f"{old} is no Python 3.11, 3.12 or 3.13 that runs.")


def test_a_python_without_ensurepip_says_what_to_install(places: Path) -> None:
    """Debian ships venv in a package of its own; the message names it."""
    program(places / "python3", f'case "$*" in *ensurepip*) exit 1 ;; esac\nexec {sys.executable} "$@"')
    done = script("make-venv", places.parent / "env", places=places)
    assert done.returncode == 1
    version = ".".join(map(str, CHOSEN))
    assert f"Debian, Ubuntu:  sudo apt-get install python{version}-venv" in done.stderr


# The browser.

NO_PLAYWRIGHT = "echo 'cannot download' >&2; exit 1"


def test_a_chromium_that_runs_is_taken(places: Path) -> None:
    """The stub that only says how to install another package is passed over."""
    program(places / "chromium-browser", "echo 'requires the chromium snap' >&2; exit 1")
    chrome = program(places / "google-chrome", "exit 0")
    python = program(places / "python", NO_PLAYWRIGHT)
    assert script("chromium", python, places=places).stdout.strip() == str(chrome)


def test_playwright_gets_one_where_apt_get_cannot(places: Path) -> None:
    """Where there is none, Playwright downloads one and says where it is."""
    chromium = places.parent / "playwright" / "chrome"
    download = f"mkdir -p {chromium.parent}; printf '#!/bin/sh' > {chromium}; chmod +x {chromium}"
    for tool in ["mkdir", "chmod"]:
        (places / tool).symlink_to(shutil.which(tool) or tool)
    python = program(places / "python", f'case "$*" in *" install chromium") {download} ;; *) echo {chromium} ;; esac')
    program(places / "apt-get", "exit 100")
    assert script("chromium", python, places=places).stdout.strip() == str(chromium)


@pytest.mark.parametrize(("required", "status"), [("", 0), ("1", 1)])
def test_without_a_browser_the_tests_are_skipped_unless_it_is_required(
    places: Path, required: str, status: int
) -> None:
    """What went wrong is shown either way; elsewhere the browser tests are skipped."""
    python = program(places / "python", NO_PLAYWRIGHT)
    done = script("chromium", python, places=places, STREAMSTATE_REQUIRE_BROWSER=required)
    assert (done.returncode, done.stdout) == (status, "")
    assert "cannot download" in done.stderr
    assert "STREAMSTATE_CHROMIUM=" in done.stderr


# What .ci/run relies on.


@pytest.mark.parametrize(
    ("tests", "status"),
    [
        ("def test_one(): pass\n@pytest.mark.browser\ndef test_two(): pass", 0),
        ("def test_one(): pass\n@pytest.mark.browser\ndef test_two(): pytest.skip('no browser')", 1),
        ("def test_one(): pass", 5),
        ("def test_one(): pytest.skip('not today')", 5),
    ],
)
def test_a_run_without_tests_or_without_the_browser_fails(tmp_path: Path, tests: str, status: int) -> None:
    """Only a run in which tests passed, and browser tests among them, is a success."""
    (tmp_path / "test_it.py").write_text(f"import pytest\n{tests}\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = browser: needs one\n")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "scripts.must_run",
            "-p",
            "no:cacheprovider",
            "--rootdir",
            tmp_path,
            tmp_path,
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stdout


def test_the_type_check_sees_every_part(tmp_path: Path) -> None:
    """An error across two of the folders is found, and reported with the path of the file it is in."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "typecheck.py", tmp_path / "scripts")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for folder in ["kernel_ext/magics", "snapshots", "state_inspect", "widgets", "tutorials"]:
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "__init__.py").touch()
    (tmp_path / "kernel_ext" / "__init__.py").touch()
    (tmp_path / "snapshots" / "epochs.py").write_text("def newest() -> int:\n    return 1\n")
    wrong = "from streamstate.snapshots.epochs import newest\n\nname: str = newest()\n"
    (tmp_path / "kernel_ext" / "magics" / "wrong.py").write_text(wrong)
    (tmp_path / "widgets" / "wrong.py").write_text(wrong)
    check: list[str | Path] = [sys.executable, tmp_path / "scripts" / "typecheck.py"]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    found = {line.partition(": error:")[0] for line in done.stdout.splitlines() if ": error:" in line}
    assert found == {"kernel_ext/magics/wrong.py:3", "widgets/wrong.py:3"}, done.stdout
    assert done.returncode == 1


def test_make_alone_lists_the_targets() -> None:
    """``make`` without a target changes nothing and says what there is."""
    said = subprocess.check_output(["make", "--no-print-directory", "-C", ROOT], text=True)
    assert {"demo", "test", "lab", "lint", "bench", "clean"} <= {line.split()[1] for line in said.splitlines()}


def test_scripts_can_be_run() -> None:
    """They are called by path, from a fresh clone."""
    assert all(os.access(ROOT / name, os.X_OK) for name in ["scripts/make-venv", "scripts/chromium", ".ci/run"])
