"""The folder that a drill has to itself: checkpoints, what its processes write, and nothing of it outside."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from streamstate.snapshots.errors import InvalidArgumentError

__all__ = ["Scratch", "scratch"]

# Where this process is a part of a Spark that was started from outside, its children are not.
_OF_THIS_SPARK = ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET")


@dataclass(frozen=True)
class Scratch:
    """Where a drill writes."""

    folder: Path

    @property
    def undisturbed(self) -> Path:
        """The checkpoint of the run that nobody kills."""
        return self.folder / "undisturbed"

    @property
    def drilled(self) -> Path:
        """The checkpoint of the run that is killed."""
        return self.folder / "drilled"

    @property
    def temporary(self) -> Path:
        """What Java and Python call the folder for temporary files: killed processes leave theirs behind."""
        return self.folder / "tmp"

    @property
    def spark(self) -> Path:
        """Spark as it is installed, in links."""
        return self.folder / "spark"

    def environment(self) -> dict[str, str]:
        """The variables that the drill's processes run with."""
        return {
            **{name: value for name, value in os.environ.items() if name not in _OF_THIS_SPARK},
            "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),  # noqa: PTH109 (text is wanted)
            "TMPDIR": str(self.temporary),
            "SPARK_LOCAL_DIRS": str(self.temporary),
            # Executors write their logs to "work" beside Spark's own programs, wherever those are.
            "SPARK_HOME": str(self.spark),
        }


@contextmanager
def scratch(directory: str | os.PathLike[str] | None, *, keep: bool) -> Iterator[Scratch]:
    """A new folder for a drill, removed in the end unless it is to be kept.

    Raises:
        InvalidArgumentError: there can be no folder in the directory.
    """
    made = Scratch(_made(directory))
    try:
        made.temporary.mkdir()
        _link_spark(made.spark)
        yield made
    finally:
        for folder in (made.temporary, made.spark) if keep else (made.folder,):
            shutil.rmtree(folder)


def _made(directory: str | os.PathLike[str] | None) -> Path:
    try:
        if directory is not None:
            Path(directory).mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix="streamstate-drill-", dir=directory)).resolve()
    except OSError as error:
        raise InvalidArgumentError(
            f"A drill cannot write to {directory}: {error.strerror}.\n"
            "Name a directory on the local disk that can be written to; left out, it is the one for temporary files."
        ) from error


def _link_spark(folder: Path) -> None:
    from pyspark.find_spark_home import _find_spark_home

    folder.mkdir()
    for part in Path(_find_spark_home()).iterdir():
        if part.name != "work":
            (folder / part.name).symlink_to(part.resolve())
