"""The Java that Spark runs on: find one, require one, or install one (``python -m streamstate.java``).

Java is searched in ``JAVA_HOME``, on ``PATH``, in the Python environment, and in the usual folders of systems, package
managers and users, in this order. What counts is the version that a ``java`` reports when it is run, never its name.
With ``STREAMSTATE_NO_INSTALL=1`` nothing is installed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamstate.errors import JavaNotFoundError

SUPPORTED = (17, 21)
"""The supported versions of Java; the first is the one to install."""

HOW_TO_GET = """\
Debian, Ubuntu:  sudo apt-get install openjdk-17-jre-headless   (newer releases: openjdk-21-jre-headless)
macOS:           brew install openjdk@17
conda:           conda install -c conda-forge openjdk=17"""
"""Instructions for installing Java, in three lines."""

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
# Our download, and conda's openjdk: in a kernel whose environment was not activated, neither is on PATH.
ENVIRONMENT_FOLDERS = ("jdk/[!.]*", "jdk/[!.]*/Contents/Home", "lib/jvm")

NO_INSTALL = "STREAMSTATE_NO_INSTALL"
"""An environment variable; if it is set, nothing is installed or downloaded."""

ADOPTIUM = "https://api.adoptium.net"
# Adoptium's names of systems and processors.
_SYSTEMS = {"Linux": "linux", "Darwin": "mac"}
_PROCESSORS = {"x86_64": "x64", "amd64": "x64", "arm64": "aarch64"}

_ANSWER_SECONDS = 60
_INSTALL_SECONDS = 900
_DOWNLOAD_STALL_SECONDS = 60


@dataclass(frozen=True)
class _Java:
    """A ``java``, and what it reported when it was run."""

    program: Path
    version: int | None
    home: Path | None

    def __str__(self) -> str:
        return f"{self.program} ({f'Java {self.version}' if self.version else 'does not run'})"


def find_java() -> Path:
    """Return the home folder of the first Java 17 or 21 found, which contains ``bin/java``.

    Raises:
        JavaNotFoundError: there is none. The message lists what was found instead, and how to install Java.
    """
    return _first_fitting()[1]


def require_java() -> Path:
    """As :func:`find_java`, for Spark in this process: ``JAVA_HOME`` is set to it, if it names no suitable Java."""
    program, home = _first_fitting()
    named = os.environ.get("JAVA_HOME")
    if named and program == _program(Path(named)):
        return Path(named)
    if named:
        message = f"JAVA_HOME ({named}) is not a Java 17 or 21; Spark uses {home} instead."
        warnings.warn(message, RuntimeWarning, stacklevel=2)
    os.environ["JAVA_HOME"] = str(home)
    return home


def ensure_java() -> Path:
    """Find a Java 17 or 21, or install one.

    As root, ``apt-get`` installs it on the system. If that fails, one is downloaded from Adoptium into ``jdk/`` inside
    the Python environment, and its SHA-256 is compared with Adoptium's. Either step is announced first. Nothing is
    installed if the environment variable ``STREAMSTATE_NO_INSTALL`` is set.

    Returns:
        Its home folder.

    Raises:
        JavaNotFoundError: neither way worked. The message says why, and how to install Java.
    """
    if os.environ.get(NO_INSTALL):
        try:
            return find_java()
        except JavaNotFoundError as error:
            raise JavaNotFoundError(f"{NO_INSTALL} is set, so no Java was installed.\n{error}") from None
    failed: list[str] = []
    for way, install in (("Installing it with apt-get", _apt_get), ("Downloading it from Adoptium", _download)):
        with contextlib.suppress(JavaNotFoundError):
            return find_java()
        failure = install()
        failed.append(f"{way} failed: {failure or 'the installed Java does not run'}.")
    try:
        return find_java()
    except JavaNotFoundError as error:
        raise JavaNotFoundError("\n".join([*failed, str(error)])) from None


def _first_fitting() -> tuple[Path, Path]:
    """Return the first ``java`` that Spark can use, and its home."""
    unusable = []
    for program in _programs():
        java = _run(program)
        if java.version in SUPPORTED and java.home is not None:
            return program, java.home
        unusable.append(str(java))
    lines = ["Spark needs Java 17 or 21, and none was found."]
    if unusable:
        lines.append(f"Not usable: {', '.join(unusable)}.")
    raise JavaNotFoundError("\n".join([*lines, HOW_TO_GET]))


def _programs() -> Iterator[Path]:
    """Return every ``java`` to run, each file once, explicitly chosen ones first."""
    seen = set()
    for program in _places():
        file = program.resolve()
        if file not in seen and (program.is_file() or program == _named()):
            seen.add(file)
            yield program


def _places() -> Iterator[Path]:
    """Return the paths at which a ``java`` may be."""
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
    """Return the ``java`` of ``JAVA_HOME``; it is tried even if it does not exist, so that the message can name it."""
    home = os.environ.get("JAVA_HOME")
    return _program(Path(home)) if home else None


def _program(home: Path) -> Path:
    return home / "bin" / "java"


def _run(program: Path) -> _Java:
    """Run a ``java`` for its version and home; the shim of a version manager reports those of the Java behind it."""
    command = [str(program), "-XshowSettings:properties", "-version"]
    try:
        output = subprocess.run(
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
    version = re.search(r'version "(?:1\.)?(\d+)', output)
    home = re.search(r"^\s*java\.home = (.+?)\s*$", output, re.MULTILINE)
    folder = Path(home[1]) if home else program.resolve().parent.parent
    return _Java(program, int(version[1]) if version else None, folder if _program(folder).is_file() else None)


def _apt_get() -> str:
    """Install a Java with ``apt-get``; returns the error, if any."""
    if not shutil.which("apt-get"):
        return "apt-get is not available"
    if os.geteuid() != 0:
        return "it requires root"
    print(
        f"No Java 17 or 21 was found: installing openjdk-17-jre-headless (or 21) on this system with apt-get, as root"
        f" (set {NO_INSTALL}=1 to prevent this).",
        flush=True,
    )
    # If the update fails, the source with Java may still be available.
    failure = _run_apt("update")
    for version in SUPPORTED:
        failure = _run_apt("install", "--yes", "--no-install-recommends", f"openjdk-{version}-jre-headless")
        if not failure:
            break
    return failure


def _run_apt(*arguments: str) -> str:
    """Run ``apt-get`` without questions; returns its error, if any."""
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


def _download() -> str:
    """Download a Java from Adoptium into ``jdk/`` inside the Python environment; returns the error, if any."""
    folder = Path(sys.prefix, "jdk")
    print(
        f"No Java 17 or 21 was found: downloading one from Adoptium into {folder}"
        f" (set {NO_INSTALL}=1 to prevent this).",
        flush=True,
    )
    try:
        folder.mkdir(exist_ok=True)
        # Unpacked elsewhere and moved, so that an incomplete Java is never found.
        with tempfile.TemporaryDirectory(prefix=".", dir=folder) as aside:
            archive = Path(aside, "jre.tar.gz")
            _fetch(archive)
            with tarfile.open(archive) as packed:
                packed.extractall(Path(aside, "jre"), filter="data")
            (home,) = Path(aside, "jre").iterdir()
            shutil.rmtree(folder / home.name, ignore_errors=True)
            home.rename(folder / home.name)
    except (OSError, ValueError, tarfile.TarError) as error:
        return str(error)
    return ""


def _fetch(archive: Path) -> None:
    """Download Adoptium's latest build of Java for this machine, which must exist and have the right checksum."""
    system, processor = platform.system(), platform.machine().lower()
    query = f"os={_SYSTEMS.get(system, system)}&architecture={_PROCESSORS.get(processor, processor)}"
    found: Any = json.load(
        _opened(f"{ADOPTIUM}/v3/assets/latest/{SUPPORTED[0]}/hotspot?image_type=jre&vendor=eclipse&{query}")
    )
    if not found:
        raise ValueError(f"there is no Java {SUPPORTED[0]} for {system} on {processor}")
    package = found[0]["binary"]["package"]
    with _opened(package["link"]) as stream, archive.open("wb") as file:
        shutil.copyfileobj(stream, file)
    with archive.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != package["checksum"]:
        raise ValueError(f"the SHA-256 of {package['link']} is {digest}; expected {package['checksum']}")


def _opened(url: str) -> Any:
    import urllib.request  # takes as long to import as all of this package

    # GitHub refuses requests without a user agent.
    request = urllib.request.Request(url, headers={"User-Agent": "streamstate"})  # noqa: S310 - Adoptium's, over HTTPS
    return urllib.request.urlopen(request, timeout=_DOWNLOAD_STALL_SECONDS)  # noqa: S310


def main() -> int:
    """Find or install a Java, and print which: ``python -m streamstate.java``."""
    try:
        home = ensure_java()
    except JavaNotFoundError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{_run(_program(home))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
