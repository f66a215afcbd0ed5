"""PySpark's classes that some versions, or the client of Spark Connect alone, have elsewhere or not at all.

A module can be imported with any of them. Without Python data sources, before Spark 4.0, their classes are empty, and
:func:`streamstate.snapshots.spark.python_sources.register_source` says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from py4j.protocol import Py4JJavaError
    from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame
    from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
else:
    try:
        from py4j.protocol import Py4JJavaError
    except ImportError:  # Connect's client alone: nothing raises such errors
        Py4JJavaError = type("Missing", (Exception,), {})
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
    "Py4JJavaError",
    "SupportsTriggerAvailableNow",
]
