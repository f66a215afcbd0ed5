"""Beside a PySpark that is too old, capturing and reading work, and the rest says which version it needs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from recorded.unpacked import CURRENT, unpacked

_OLD = """
__version__ = "3.3.4"
class SparkContext: _active_spark_context = None
"""
_PROGRAM = """
import sys, pyspark, streamstate as ss
ss.Checkpoint(sys.argv[1]).capture("store", "q")
print(ss.open_store("store")["q"].live().table().count())
build = lambda: None
for call in (ss.session, lambda: ss.Checkpoint(sys.argv[1]).check(build)):
    try:
        call()
    except ss.StreamStateError as error:
        print(f"{type(error).__name__}: {error}".splitlines()[0])
"""


def test_the_needed_version_is_named(tmp_path: Path) -> None:
    """Such a PySpark has no module of errors and no Spark Connect."""
    (tmp_path / "pyspark" / "sql").mkdir(parents=True)
    (tmp_path / "pyspark" / "__init__.py").write_text(_OLD)
    (tmp_path / "pyspark" / "sql" / "__init__.py").write_text("class SparkSession: pass")
    checkpoint = unpacked(CURRENT, tmp_path) / "counted" / "checkpoint"
    command = [sys.executable, "-c", _PROGRAM, str(checkpoint)]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows, *errors = done.stdout.splitlines()
    assert int(rows) > 0
    assert errors == ["SparkVersionError: This call needs Spark 3.5 or later; this is Spark 3.3.4."] * 2
