"""A client of Spark Connect that is newer than its server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from project.connect_server import connect_server
from scripts.other_sparks import folder_of

_SERVER = "4.1.4"
_PROGRAM = """
import os, sys
import pandas as pd, pyarrow as pa
from pyspark.sql import SparkSession
import streamstate as ss
from streamstate.state_inspect.sql.user_data import spark_frame
spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
assert ss.session() is spark
try:
    print(spark_frame(spark, pa.table({"k": [1]})).count())
except ss.StreamStateError as error:
    print(f"{type(error).__name__}: {error}", flush=True)
os._exit(0)
"""


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.timeout(600)
def test_both_versions_are_named_where_rows_cannot_be_sent(tmp_path: Path) -> None:
    """The session itself is used; Spark 4.3's client cannot read a setting of a server of 4.1."""
    with connect_server(tmp_path, folder_of(_SERVER) / "pyspark") as (address, _):
        command = [sys.executable, "-W", "ignore", "-c", _PROGRAM, address]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=300)
    assert done.stdout.startswith(
        "SparkConnectError: Spark's client, 4.3.0, is newer than its server, 4.1.4, and cannot"
    )
    assert "pip install 'pyspark==4.1.4'" in done.stdout
