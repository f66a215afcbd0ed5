"""Spark settings and environment of a process that this one starts, for a query of this one."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from streamstate.snapshots.spark.session import running_session

_LOCAL_CLUSTER = "local-cluster[2,1,1024]"

# Settings that a query may depend on. The new process decides where Spark runs, what it logs and where it puts files.
_TAKEN_OVER = (
    "spark.driver.memory",
    "spark.jars",
    "spark.jars.packages",
    "spark.jars.repositories",
    "spark.sql.",
    "spark.submit.pyFiles",
)
_NOT = ("spark.sql.warehouse.dir",)
# If this process was started by a Spark, its children must not connect to that one.
_OF_THIS_SPARK = ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET")


def child_environment(temporary: Path) -> dict[str, str]:
    """Return the environment variables of a process that imports what this one does, and starts a Spark of its own."""
    return {
        **{name: value for name, value in os.environ.items() if name not in _OF_THIS_SPARK},
        "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),  # noqa: PTH109 (a text is needed)
        "TMPDIR": str(temporary),
        "SPARK_LOCAL_DIRS": str(temporary),
    }


def spark_settings(partitions: int | None, temporary: Path, *, cluster: bool = False) -> dict[str, str]:
    """Return the settings of a process of its own, and those of the running session that a query may depend on.

    Everything runs in one Java process; with ``cluster``, in a small cluster with two executors.
    """
    java = f"-Djava.io.tmpdir={temporary}"
    settings = {**_of_running_session(), "spark.driver.extraJavaOptions": java}
    if cluster:
        settings |= {
            "spark.master": _LOCAL_CLUSTER,
            "spark.executor.memory": "1g",
            "spark.executor.extraJavaOptions": java,
        }
    if partitions is not None:
        settings["spark.sql.shuffle.partitions"] = str(partitions)
    return settings


def _of_running_session() -> dict[str, str]:
    spark = running_session()
    if spark is None:
        return {}
    settings = spark.conf.getAll
    return {name: value for name, value in settings.items() if name.startswith(_TAKEN_OVER) and name not in _NOT}
