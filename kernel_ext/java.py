"""The Java that Spark runs on: find it, insist on it, or get one (``python -m streamstate.java``).

Looked at, in this order: ``JAVA_HOME``; every ``java`` on ``PATH``; the Python environment itself; the folders where
systems, package managers and people keep theirs. What counts is what a ``java`` says when it is run, never its name.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from streamstate.snapshots.errors import JavaNotFoundError

__all__ = ["HOW_TO_GET", "SUPPORTED", "ensure_java", "find_java", "require_java"]

SUPPORTED = (17, 21)
"""The versions of Java that fit; the first is the one to get where there is none."""

HOW_TO_GET = """\
Debian, Ubuntu:  sudo apt-get install openjdk-17-jre-headless   (newer releases: openjdk-21-jre-headless)
macOS:           brew install openjdk@17
conda:           conda install -c conda-forge openjdk=17"""
"""The three lines that say how to get one."""

SYSTEM_FOLDERS = (
    "usr/lib/jvm/*",
    "usr/java/*",
    "opt/java/*",
    "opt/jdk*",
    "Library/Java/JavaVirtualMachines/*/Contents/Home",
    "opt/homebrew/opt/openjdk@*/libexec/openjdk.jdk/Contents/Home",
    "usr/local/opt/openjdk@*/libexec/openjdk.jdk/Contents/Home",
)
USER_FOLDERS = (".sdkman/candidates/java/*", ".jdks/*", ".jdk/*")
# Ours, and where conda's openjdk puts it: a kernel started without activating its environment has neither on PATH.
ENVIRONMENT_FOLDERS = ("jdk/[!.]*", "jdk/[!.]*/Contents/Home", "lib/jvm")

_ANSWER_SECONDS = 60
_INSTALL_SECONDS = 900
_DOWNLOAD_STALL_SECONDS = 60


@dataclass(frozen=True)
class _Java:
    """One ``java`` and what it said when it was run."""

    program: Path
    version: int | None
    home: Path | None

    @property
    def fits(self) -> bool:
        return self.version in SUPPORTED and self.home is not None

    def __str__(self) -> str:
        return f"{self.program} ({f'Java {self.version}' if self.version else 'does not run'})"


def find_java() -> Path:
    """Find a Java 17 or 21.

    Returns:
        The home folder of the first one found: the folder with ``bin/java`` in it.

    Raises:
        JavaNotFoundError: There is none. The message names what was passed over and says in three lines how to get one.

    Example:
        >>> (find_java() / "bin" / "java").exists()
        True
    """
    return _home(_first_fitting())


def require_java() -> Path:
    """Find a Java 17 or 21 for this process; where ``JAVA_HOME`` names none, it is set to the one found.

    Returns:
        The home folder of the Java that Spark will be started with.

    Raises:
        JavaNotFoundError: There is none. The message names what was passed over and says in three lines how to get one.

    Example:
        >>> str(require_java()) == os.environ["JAVA_HOME"]
        True
    """
    found = _first_fitting()
    named = os.environ.get("JAVA_HOME")
    if named and found.program == _program(Path(named)):
        return Path(named)
    home = _home(found)
    if named:
        message = f"JAVA_HOME names no Java 17 or 21 ({named}); Spark is started with {home} instead."
        warnings.warn(message, RuntimeWarning, stacklevel=2)
    os.environ["JAVA_HOME"] = str(home)
    return home


def ensure_java() -> Path:
    """Find a Java 17 or 21, or get one.

    As root, ``apt-get`` gets it; where that does not work, the package ``install-jdk`` puts one into ``jdk/`` inside
    the Python environment. What is being done is printed.

    Returns:
        Its home folder.

    Raises:
        JavaNotFoundError: Neither way worked. The message says why, and in three lines how to get one.
    """
    failed: list[str] = []
    for name, get in (("apt-get", _apt_get), ("install-jdk", _install_jdk)):
        with contextlib.suppress(JavaNotFoundError):
            return find_java()
        trouble = get()
        failed.append(f"{name} did not get one: {trouble or 'what it installed does not run'}.")
    try:
        return find_java()
    except JavaNotFoundError as error:
        raise JavaNotFoundError("\n".join([*failed, str(error)])) from None


def _first_fitting() -> _Java:
    """The first Java that fits."""
    passed_over = []
    for program in _programs():
        java = _ask(program)
        if java.fits:
            return java
        passed_over.append(str(java))
    lines = ["Spark needs Java 17 or 21, and none was found."]
    if passed_over:
        lines.append(f"Passed over: {', '.join(passed_over)}.")
    raise JavaNotFoundError("\n".join([*lines, HOW_TO_GET]))


def _programs() -> Iterator[Path]:
    """Every ``java`` to ask, each file once, the ones that somebody chose first."""
    seen = set()
    for program in _places():
        file = program.resolve()
        if file not in seen and (program.is_file() or program == _named()):
            seen.add(file)
            yield program


def _places() -> Iterator[Path]:
    """Where a ``java`` may be."""
    if named := _named():
        yield named
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        if folder:
            yield Path(folder, "java")
    environment = Path(sys.prefix)
    for root, patterns in (
        (environment, ENVIRONMENT_FOLDERS),
        (Path("/"), SYSTEM_FOLDERS),
        (Path(os.environ.get("HOME") or "/"), USER_FOLDERS),
    ):
        for pattern in patterns:
            yield from map(_program, sorted(root.glob(pattern)))


def _named() -> Path | None:
    """The ``java`` of ``JAVA_HOME``; it is asked even where it is missing, so that the message can name it."""
    home = os.environ.get("JAVA_HOME")
    return _program(Path(home)) if home else None


def _program(home: Path) -> Path:
    return home / "bin" / "java"


def _home(java: _Java) -> Path:
    assert java.home is not None
    return java.home


def _ask(program: Path) -> _Java:
    """Run a ``java`` for its version and its home; the shims of version managers answer as what stands behind them."""
    command = [str(program), "-XshowSettings:properties", "-version"]
    try:
        said = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_ANSWER_SECONDS,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return _Java(program, None, None)
    version = re.search(r'version "(?:1\.)?(\d+)', said)
    home = re.search(r"^\s*java\.home = (.+?)\s*$", said, re.MULTILINE)
    folder = Path(home[1]) if home else program.resolve().parent.parent
    return _Java(program, int(version[1]) if version else None, folder if _program(folder).is_file() else None)


def _apt_get() -> str:
    """Install a Java with ``apt-get``; returns what went wrong, if anything."""
    if not shutil.which("apt-get"):
        return "there is no apt-get here"
    if os.geteuid() != 0:
        return "it needs root"
    print("No Java 17 or 21 was found: getting one with apt-get.", flush=True)
    # A source that is down need not be the one with Java in it, so a failing update is no reason to stop.
    trouble = _run_apt("update")
    for version in SUPPORTED:
        trouble = _run_apt("install", "--yes", "--no-install-recommends", f"openjdk-{version}-jre-headless")
        if not trouble:
            break
    return trouble


def _run_apt(*arguments: str) -> str:
    """Run ``apt-get`` without asking anything; returns its error, if any."""
    options = ["-qq", "-o", "Acquire::Retries=1", "-o", "Acquire::http::Timeout=20", "-o", "DPkg::Lock::Timeout=120"]
    try:
        done = subprocess.run(
            ["apt-get", *options, *arguments],
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_INSTALL_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    errors = [line for line in done.stderr.splitlines() if line.startswith("E:")]
    return "" if done.returncode == 0 else " ".join(errors) or f"exit status {done.returncode}"


def _install_jdk() -> str:
    """Put a Java into ``jdk/`` inside the Python environment; returns what went wrong, if anything."""
    try:
        import jdk
    except ImportError:
        return 'it is not installed (pip install "streamstate[jdk]")'
    folder = Path(sys.prefix, "jdk")
    print(f"No Java 17 or 21 was found: downloading one into {folder}.", flush=True)
    stall = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_DOWNLOAD_STALL_SECONDS)  # install-jdk sets none and would wait for ever
    try:
        folder.mkdir(exist_ok=True)
        # Unpacked aside and moved, so that half a Java never lies where one is looked for.
        with tempfile.TemporaryDirectory(prefix=".", dir=folder) as aside:
            home = Path(jdk.install(str(SUPPORTED[0]), jre=True, path=aside))
            shutil.rmtree(folder / home.name, ignore_errors=True)
            home.rename(folder / home.name)
    except (jdk.JdkError, OSError, ValueError) as error:
        return str(error)
    finally:
        socket.setdefaulttimeout(stall)
    return ""


def main() -> int:
    """Find or get a Java, and say which: ``python -m streamstate.java``."""
    try:
        home = ensure_java()
    except JavaNotFoundError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{_ask(_program(home))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
