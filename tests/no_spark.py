"""Runs tests without Spark."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

_ADVICE = "This test starts Spark without asking for it: add the fixture `spark` to its arguments."


@contextmanager
def without_spark() -> Iterator[None]:
    """Hide the running session, and fail the test if it starts Java in this process.

    Other processes may start Spark.
    """
    open_process = subprocess.Popen.__init__

    def unless_spark(self: Any, args: Any, *more: Any, **options: Any) -> None:
        if isinstance(args, list) and Path(str(args[0])).name.startswith("spark-submit"):
            pytest.fail(_ADVICE)
        open_process(self, args, *more, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess.Popen, "__init__", unless_spark)
        if "pyspark.sql" in sys.modules:
            from pyspark import SparkContext
            from pyspark.sql import SparkSession

            for name in ("_active_spark_context", "_gateway", "_jvm"):
                patch.setattr(SparkContext, name, None)
            patch.setattr(SparkSession, "_instantiatedSession", None)
        yield
