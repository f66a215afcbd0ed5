from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import streamstate as ss
from streamstate.snapshots.errors import SessionError
from streamstate.spark_session import CAPTURE_SETTINGS, StreamStateWarning, advise


def in_a_new_process(program: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a process, and so a JVM, of its own."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_session_is_a_function_whatever_was_imported_before(tmp_path: Path) -> None:
    """A module of the package that has a public name's name would hide it."""
    program = "import streamstate as ss, streamstate.extension; ss.capture, ss.follow; print(callable(ss.session))"
    assert in_a_new_process(program, tmp_path).stdout == "True\n"


def test_a_new_session_is_set_up_for_capture(tmp_path: Path) -> None:
    """Local, quiet, without a web interface, state in RocksDB; what is given goes before the defaults."""
    done = in_a_new_process(
        """
        import os, streamstate as ss
        os.environ.pop("PYSPARK_PYTHON", None)
        spark = ss.session(**{"spark.sql.shuffle.partitions": 3, "spark.ui.showConsoleProgress": False})
        for key in ("master", "ui.enabled", "scheduler.mode", "driver.host", "driver.bindAddress"):
            print(spark.sparkContext.getConf().get("spark." + key))
        state_store = "streaming.stateStore.checkpointFormatVersion"
        for key in ("shuffle.partitions", "execution.arrow.pyspark.enabled", state_store):
            print(spark.conf.get("spark.sql." + key))
        print(spark.range(5).rdd.map(lambda row: __import__("sys").executable).first() == __import__("sys").executable)
        print(ss.session() is spark)
        """,
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    said = done.stdout.split()
    assert said == ["local[*]", "false", "FAIR", "localhost", "127.0.0.1", "3", "true", "2", "True", "True"]
    noise = [line for line in done.stderr.splitlines() if "incubator" not in line]
    assert noise == []


def test_spark_that_cannot_start_says_why(tmp_path: Path) -> None:
    """In plain lines that name what was given."""
    done = in_a_new_process(
        """
        import streamstate as ss
        try:
            ss.session(**{"spark.master": "moon"})
        except Exception as error:
            print(type(error).__name__, error)
        """,
        tmp_path,
    )
    assert done.stdout.startswith("SessionError Spark did not start: ")
    assert "spark.master=moon" in done.stdout
    assert len(done.stdout.splitlines()) <= 3


def test_a_plain_session_is_used_and_advised_once(tmp_path: Path) -> None:
    """What it lacks is said once, with the lines that set it; none of it is changed."""
    done = in_a_new_process(
        """
        import warnings
        from pyspark.sql import SparkSession
        plain = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
        import streamstate as ss
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert ss.session() is plain and ss.session() is plain
        print(len(caught), caught[0].category.__name__)
        provider = "spark.sql.streaming.stateStore.providerClass"
        print("RocksDB" in plain.conf.get(provider))
        for line in str(caught[0].message).splitlines():
            if line.startswith("    "):
                exec(line.strip(), {"spark": plain})
        print("RocksDB" in plain.conf.get(provider))
        """,
        tmp_path,
    )
    assert done.stdout.split() == ["1", "StreamStateWarning", "False", "True"], done.stderr


def test_a_running_session_takes_what_can_be_set(spark: SparkSession) -> None:
    """SQL settings are set; what already is as wanted is no conflict."""
    before = spark.conf.get("spark.sql.shuffle.partitions")
    try:
        assert ss.session(**{"spark.sql.shuffle.partitions": 5, "spark.master": "local[*]"}) is spark
        assert spark.conf.get("spark.sql.shuffle.partitions") == "5"
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", str(before))


def test_settings_fixed_at_the_start_are_refused(spark: SparkSession) -> None:
    """All of them are named, and nothing is set."""
    before = spark.conf.get("spark.sql.shuffle.partitions")
    wanted = {"spark.sql.shuffle.partitions": "5", "spark.master": "local[3]", "spark.sql.warehouse.dir": "/x"}
    with pytest.raises(SessionError) as caught:
        ss.session(**wanted)
    message = str(caught.value)
    assert "spark.master is local[*], not local[3]" in message
    assert "spark.sql.warehouse.dir" in message
    assert "spark.sql.shuffle.partitions" not in message
    assert spark.conf.get("spark.sql.shuffle.partitions") == before


def test_a_session_that_lacks_nothing_is_not_advised(spark: SparkSession, recwarn: pytest.WarningsRecorder) -> None:
    """Ours has it all."""
    assert all(spark.conf.get(key) == value for key, value in CAPTURE_SETTINGS.items())
    advise(spark)
    assert not [one for one in recwarn if one.category is StreamStateWarning]
