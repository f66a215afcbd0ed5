"""The Spark settings that a drill's processes run with."""

from __future__ import annotations

from pathlib import Path

__all__ = ["spark_settings"]

_LOCAL_CLUSTER = "local-cluster[2,1,1024]"

# What a query may depend on. Where Spark runs, how much it logs and where it puts files is the drill's business.
_TAKEN_OVER = (
    "spark.driver.memory",
    "spark.jars",
    "spark.jars.packages",
    "spark.jars.repositories",
    "spark.sql.",
    "spark.submit.pyFiles",
)
_NOT = ("spark.sql.warehouse.dir",)


def spark_settings(kill: str, partitions: int | None, temporary: Path) -> dict[str, str]:
    """The settings of the session that runs in this process, as far as a query may depend on them, and the drill's own.

    Args:
        kill: ``"query"``: everything runs in one Java process; ``"executor"``: in a cluster of two executors.
        partitions: how many state partitions; None: as many as the session that runs has, or Spark's default.
        temporary: the folder for Java's temporary files.
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
    from streamstate.spark_session import running_session

    spark = running_session()
    if spark is None:
        return {}
    known = spark.conf.getAll
    return {name: value for name, value in known.items() if name.startswith(_TAKEN_OVER) and name not in _NOT}
