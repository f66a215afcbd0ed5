"""Captures in a process that has neither PySpark nor Java."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

# Captures checkpoints where neither PySpark nor Java can be used, and prints the reports, or the error.
_PROGRAM = """
import json, sys
pairs, missing, options = map(json.loads, sys.argv[1:])
for name in ["pyspark", "py4j", *missing]:
    sys.modules[name] = None
import streamstate as ss
for checkpoint, store in pairs:
    try:
        report = ss.Checkpoint(checkpoint, storage_options=options).capture(store, "q")
        print(json.dumps([report.epochs, dict(report.by_spark)]))
    except ss.errors.StreamStateError as error:
        print(json.dumps([type(error).__name__, str(error)]))
        capture = ss.Checkpoint(checkpoint, storage_options=options).follow(store + "-followed", "q")
        try:
            capture.wait(timeout=300)
        except ss.errors.CaptureError as error:
            print(json.dumps([capture.status.state, str(error)]))
"""


def captured_without_spark(
    *pairs: tuple[Path | str, Path | str], missing: Sequence[str] = (), options: Mapping[str, str] | None = None
) -> list[list[Any]]:
    """Capture in a process without Spark, and without other modules; return the reports."""
    environment = {key: value for key, value in os.environ.items() if key != "JAVA_HOME"}
    arguments = [[[str(checkpoint), str(store)] for checkpoint, store in pairs], missing, options]
    process = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *map(json.dumps, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in process.stdout.splitlines()]
