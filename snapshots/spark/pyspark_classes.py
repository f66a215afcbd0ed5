"""PySpark's classes that some versions have elsewhere, or not at all.

A module can be imported with any version. Without Python data sources, before Spark 4.0, their classes are empty, and
:func:`streamstate.snapshots.spark.python_sources.register_source` says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame
    from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
else:
    try:
        from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame
    except ModuleNotFoundError:  # before Spark 4.0, which has its JVM in the same class; or Connect's client alone
        from pyspark.sql import DataFrame as ClassicDataFrame
    try:
        from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
    except ModuleNotFoundError:  # before Spark 4.0
        DataSource, DataSourceStreamReader, InputPartition = (type("Missing", (), {}) for _ in range(3))
    try:
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
    except ModuleNotFoundError:  # before Spark 4.2, which expects nothing of sources
        SupportsTriggerAvailableNow = type("Missing", (), {})

__all__ = [
    "ClassicDataFrame",
    "DataSource",
    "DataSourceStreamReader",
    "InputPartition",
    "SupportsTriggerAvailableNow",
]
