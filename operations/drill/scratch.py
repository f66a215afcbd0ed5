"""The folder in which a drill keeps everything that it writes."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from streamstate.errors import InvalidArgumentError
from streamstate.snapshots.spark.child_settings import child_environment


class Scratch:
    """The folder of a drill."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.undisturbed, self.drilled = folder / "undisturbed", folder / "drilled"
        """The checkpoints of the run that is not killed, and of the one that is."""
        self.temporary = folder / "tmp"
        """For temporary files of Java and Python, which killed processes leave behind."""
        self.spark = folder / "spark"
        """Links to the installed Spark."""

    def environment(self) -> dict[str, str]:
        """Return the environment variables of the drill's processes."""
        return {
            **child_environment(self.temporary),
            # Executors write their logs to "work" beside Spark's own programs, wherever those are.
            "SPARK_HOME": str(self.spark),
        }


@contextmanager
def scratch(directory: str | os.PathLike[str] | None, *, keep: bool) -> Iterator[Scratch]:
    """A new folder for a drill, removed at the end unless it is to be kept."""
    place = Scratch(_new_folder(directory))
    try:
        place.temporary.mkdir()
        _link_spark(place.spark)
        yield place
    finally:
        for folder in (place.temporary, place.spark) if keep else (place.folder,):
            shutil.rmtree(folder)


def _new_folder(directory: str | os.PathLike[str] | None) -> Path:
    try:
        if directory is not None:
            Path(directory).mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix="streamstate-drill-", dir=directory)).resolve()
    except OSError as error:
        raise InvalidArgumentError(
            f"A drill cannot write to {directory}: {error.strerror}.\n"
            "Choose a writable directory on the local disk, or leave it out to use the one for temporary files."
        ) from error


def _link_spark(folder: Path) -> None:
    from pyspark.find_spark_home import _find_spark_home

    folder.mkdir()
    for part in Path(_find_spark_home()).iterdir():
        if part.name != "work":
            (folder / part.name).symlink_to(part.resolve())
