"""Jars that Maven fetches once, into a folder of the user's cache.

With ``STREAMSTATE_NO_INSTALL=1`` nothing is fetched: missing jars are an error.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape
from zlib import crc32

from streamstate.errors import MissingDependencyError


@dataclass(frozen=True)
class JarSet:
    """Artifacts of Maven, as ``group:name:version``, with or without all that they depend on."""

    artifacts: tuple[str, ...]
    alone: bool = True

    def pom(self) -> str:
        """Return a project that depends on the artifacts, for Maven."""
        return (
            '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
            "<groupId>streamstate</groupId><artifactId>jars</artifactId><version>1</version>"
            f"<dependencies>{''.join(map(self._dependency, self.artifacts))}</dependencies></project>"
        )

    def _dependency(self, artifact: str) -> str:
        tags = zip(("groupId", "artifactId", "version"), artifact.split(":"), strict=True)
        alone = (
            "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
            if self.alone
            else ""
        )
        return f"<dependency>{''.join(f'<{tag}>{escape(value)}</{tag}>' for tag, value in tags)}{alone}</dependency>"


def cache() -> Path:
    """Return the folder for what the tests need and fetch."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "streamstate")


def fetched(name: str, wanted: JarSet) -> list[Path]:
    """Return jars, which are fetched once; the name is that of their folder.

    Raises:
        MissingDependencyError: they are missing, and there is no Maven, or nothing may be installed.
        subprocess.CalledProcessError: Maven could not fetch them.
    """
    folder = cache() / "jars" / f"{name}-{crc32(wanted.pom().encode()):08x}"  # one folder for each choice of versions
    if not folder.is_dir():
        if os.environ.get("STREAMSTATE_NO_INSTALL") or not shutil.which("mvn"):
            raise MissingDependencyError(f"{', '.join(wanted.artifacts)}: missing. Install Maven, which fetches them.")
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as parts:
            _fetch(wanted, Path(parts))
            try:
                Path(parts, "jars").rename(folder)
            except OSError:
                if not folder.is_dir():  # otherwise another process was quicker
                    raise
    return sorted(folder.glob("*.jar"))


def _fetch(wanted: JarSet, folder: Path) -> None:
    """Copy the jars from Maven's own folder, which is not always below HOME."""
    pom = folder / "pom.xml"
    pom.write_text(wanted.pom(), encoding="utf-8")
    copy = ("mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={folder / 'jars'}")
    done = subprocess.run(copy, stdout=subprocess.PIPE, text=True, check=False)  # stdout is the caller's
    if done.returncode:
        sys.stderr.write(done.stdout)
    done.check_returncode()
