"""Record checkpoints with several versions of Spark for the tests: ``python tests/recorded/make.py``.

Each version has a separate virtual environment with PySpark and the packages for its pandas functions. Python 3.11 and
Java 17 are required. The archives in this folder are overwritten.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

HERE = Path(__file__).parent
ROOT = "/tmp/streamstate-recorded"  # fixed, because the source logs of the queries contain it
_OLD = ("pandas<2.2", "numpy<2", "pyarrow<16", "setuptools<80")
_NEW = ("pandas<3", "pyarrow<22")
REQUIREMENTS = {"3.4": _OLD, "3.5": _OLD, "4.0": _NEW, "4.1": _NEW, "4.2": _NEW}
"""The packages that are installed with each version of ``pyspark``."""


def environment(version: str, folder: Path) -> Path:
    """The Python of a virtual environment with a version of Spark, which is created if necessary."""
    python = folder / version / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder / version)], check=True)
    packages = [f"pyspark=={version}.*", *REQUIREMENTS[version]]
    subprocess.run([str(python), "-m", "pip", "install", "-q", *packages], check=True)
    return python


def record(version: str, environments: Path) -> Path:
    """Run the queries with a version of Spark, and archive their checkpoints."""
    python = environment(version, environments)
    folder = Path(ROOT) / version
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([str(python), str(HERE / "queries.py"), version, str(folder)], check=True)
    return archived(version, folder)


def archived(version: str, folder: Path) -> Path:
    """Archive the checkpoints of a version of Spark."""
    archive = HERE / f"spark-{version}.tar.xz"
    with tarfile.open(archive, "w:xz", preset=9) as tar:
        tar.add(folder, arcname=version, filter=_anonymous)
    return archive


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def report(archive: Path) -> None:
    """Print the size of an archive."""
    sys.stdout.write(f"{archive.name}: {archive.stat().st_size:,} bytes\n")


def main() -> None:
    """Record all versions, or the given ones."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("versions", nargs="*", default=[*REQUIREMENTS], help="such as 3.5; all by default")
    parser.add_argument(
        "--environments", type=Path, default=Path(ROOT) / "environments", help="folder of the virtual environments"
    )
    arguments = parser.parse_args()
    for version in arguments.versions:
        report(record(version, arguments.environments))


if __name__ == "__main__":
    main()
