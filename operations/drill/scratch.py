"""The folder in which a drill keeps everything that it writes, and the Spark settings that its processes run with."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from streamstate.errors import InvalidArgumentError

# If this process was started by a Spark, its children must not connect to that one.
_OF_THIS_SPARK = ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET")

_LOCAL_CLUSTER = "local-cluster[2,1,1024]"

# Settings that a query may depend on. The drill decides where Spark runs, how much it logs and where it puts files.
_TAKEN_OVER = (
    "spark.driver.memory",
    "spark.jars",
    "spark.jars.packages",
    "spark.jars.repositories",
    "spark.sql.",
    "spark.submit.pyFiles",
)
_NOT = ("spark.sql.warehouse.dir",)


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
            **{name: value for name, value in os.environ.items() if name not in _OF_THIS_SPARK},
            "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),  # noqa: PTH109 (a text is needed)
            "TMPDIR": str(self.temporary),
            "SPARK_LOCAL_DIRS": str(self.temporary),
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


def spark_settings(kill: str, partitions: int | None, temporary: Path) -> dict[str, str]:
    """Return the drill's own settings, and those of the running session that a query may depend on.

    With ``kill="query"`` everything runs in one Java process, with ``"executor"`` in a cluster of two executors.
    """
    java = f"-Djava.io.tmpdir={temporary}"
    settings = {**_of_running_session(), "spark.driver.extraJavaOptions": java}
    if kill == "executor":
        settings |= {
            "spark.master": _LOCAL_CLUSTER,
            "spark.executor.memory": "1g",
            "spark.executor.extraJavaOptions": java,
        }
    if partitions is not None:
        settings["spark.sql.shuffle.partitions"] = str(partitions)
    return settings


def _of_running_session() -> dict[str, str]:
    from streamstate.snapshots.spark.session import running_session

    spark = running_session()
    if spark is None:
        return {}
    settings = spark.conf.getAll
    return {name: value for name, value in settings.items() if name.startswith(_TAKEN_OVER) and name not in _NOT}
