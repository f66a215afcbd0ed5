from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import streamstate as ss
from streamstate.errors import SessionError
from streamstate.snapshots.spark.session import StreamStateWarning, advise, capture_settings

pytestmark = pytest.mark.slow


def in_a_new_process(program: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a new process, with a new JVM."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_session_is_a_function_after_other_imports(tmp_path: Path) -> None:
    """No imported module hides the public name."""
    program = (
        "import streamstate as ss, streamstate.extension; ss.Checkpoint, ss.open_store; print(callable(ss.session))"
    )
    assert in_a_new_process(program, tmp_path).stdout == "True\n"


def test_a_new_session_is_set_up_for_capture(tmp_path: Path) -> None:
    """It is local, without a web interface, and stores state in RocksDB. Given settings override the defaults.

    Workers run the same Python, without a lasting environment variable. The output of Java and the workers goes to
    the session's log, and not to the terminal. No other program can connect to what Spark opens for its Python.
    """
    process = in_a_new_process(
        """
        import os, streamstate as ss
        os.environ.pop("PYSPARK_PYTHON", None)
        spark = ss.session(**{"spark.sql.shuffle.partitions": 3, "spark.ui.showConsoleProgress": False})
        fixed = "master ui.enabled scheduler.mode driver.host driver.bindAddress python.unix.domain.socket.enabled"
        for key in fixed.split():
            print(spark.sparkContext.getConf().get("spark." + key))
        state_store = "streaming.stateStore.checkpointFormatVersion"
        for key in ("shuffle.partitions", "execution.arrow.pyspark.enabled", state_store):
            print(spark.conf.get("spark.sql." + key))
        print(spark.range(5).rdd.map(lambda row: __import__("sys").executable).first() == __import__("sys").executable)
        print(ss.session() is spark)
        print("PYSPARK_PYTHON" not in os.environ)
        spark.range(1).foreach(lambda row: print("from a worker", flush=True))
        log = open(spark.conf.get("spark.streamstate.log")).read()
        print("incubator" in log, "from a worker" in log)
        """,
        tmp_path,
    )
    assert process.returncode == 0, process.stderr
    expected = ["local[*]", "false", "FAIR", "localhost", "127.0.0.1", "true", "3", "true", "2", *["True"] * 5]
    assert process.stdout.split() == expected
    assert process.stderr == ""


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.timeout(120)
def test_rows_arrive_although_another_program_connects_to_their_port_first(tmp_path: Path) -> None:
    """Spark hangs up on it, and serves the rows again. If that fails too, it is an error: nothing waits for ever.

    PySpark's own toArrow() would wait. The program is a ZeroMQ client, such as a notebook server's.
    """
    process = in_a_new_process(
        """
        import contextlib, socket, streamstate as ss
        from pyspark import util
        from streamstate.snapshots.spark.fetching import NotServedError, to_arrow
        frame = ss.session(**{"spark.python.unix.domain.socket.enabled": "false"}).range(3)
        connect = util._create_local_socket

        def connect_second(result):
            global strays
            if strays:
                strays -= 1
                with socket.create_connection(("127.0.0.1", result[0])) as stray:
                    stray.sendall(bytes.fromhex("ff00000000000000017f"))
                    with contextlib.suppress(ConnectionResetError):
                        stray.recv(1)
            return connect(result)

        util._create_local_socket = connect_second
        strays = 1
        print(to_arrow(frame).num_rows, strays)
        strays = 2
        try:
            to_arrow(frame)
        except NotServedError as error:
            print("spark.python.unix.domain.socket.enabled=true" in str(error), strays)
        """,
        tmp_path,
    )
    assert process.stdout.split() == ["3", "0", "True", "0"], process.stderr


@pytest.mark.slow
def test_a_failed_start_of_java_is_an_error(tmp_path: Path) -> None:
    """The error has the output of Java and the path of the log. Nothing else is printed."""
    process = in_a_new_process(
        """
        import streamstate as ss
        log = {"spark.streamstate.log": "spark.log"}
        try:
            ss.session(**{"spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:+UseParallelGC"}, **log)
        except ss.StreamStateError as error:
            print(error)
        print(ss.session(**log).range(3).count())
        """,
        tmp_path,
    )
    assert process.stderr == ""
    assert "Multiple garbage collectors selected" in process.stdout
    assert "-XX:+UseSerialGC -XX:+UseParallelGC" in process.stdout
    log = tmp_path / "spark.log"
    assert str(log) in process.stdout
    assert "Multiple garbage collectors selected" in log.read_text()
    assert process.stdout.splitlines()[-1] == "3"


FAILED_STARTS: dict[str, tuple[dict[str, object], str]] = {
    "master": ({"spark.master": "moon"}, "Master must either be yarn or start with spark, k8s, or local"),
    "memory": ({"spark.driver.memory": "100m"}, "Insufficient driver memory"),
    "port": ({"spark.driver.port": "TAKEN", "spark.port.maxRetries": 0}, "Address already in use"),
}


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize(
    ("names", "repetitions"), [(["port"], 1), pytest.param([*FAILED_STARTS], 50, marks=pytest.mark.exhaustive)]
)
def test_a_failed_start_of_spark_leaves_nothing(tmp_path: Path, names: list[str], repetitions: int) -> None:
    """The error has Java's reason and the given settings. Java has ended, and the next start is another one."""
    starts = {name: FAILED_STARTS[name] for name in names}
    process = in_a_new_process(
        f"""
        import json, socket, psutil, streamstate as ss
        taken = socket.create_server(("127.0.0.1", 0))
        seen = {{}}
        for name, (conf, _) in {starts!r}.items():
            conf = {{key: taken.getsockname()[1] if value == "TAKEN" else value for key, value in conf.items()}}
            for _ in range({repetitions}):
                try:
                    ss.session(**conf)
                except ss.StreamStateError as error:
                    seen[name] = [type(error).__name__, str(error), len(psutil.Process().children())]
        spark = ss.session()
        print(json.dumps([seen, spark.range(3).count(), len(psutil.Process().children())]))
        """,
        tmp_path,
    )
    assert process.returncode == 0, process.stderr
    seen, rows, children = json.loads(process.stdout)
    assert (rows, children) == (3, 1)
    for name, (conf, reason) in starts.items():
        error, message, left = seen[name]
        assert (error, left) == ("SessionError", 0)
        assert message.startswith("Spark did not start: ")
        assert reason in message.splitlines()[0]
        assert f"Settings given: {next(iter(conf))}=" in message
        assert len(message.splitlines()) == 3


def test_an_existing_session_is_used_with_one_warning(tmp_path: Path) -> None:
    """The warning has the statements that set missing settings. The session itself is unchanged."""
    process = in_a_new_process(
        """
        import warnings
        from pyspark.sql import SparkSession
        plain = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
        import streamstate as ss
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert ss.session() is plain and ss.session() is plain
        print(type(plain.sparkContext._gateway._gateway_client).__module__)
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
    expected = ["py4j.clientserver", "1", "StreamStateWarning", "False", "True"]
    assert process.stdout.split() == expected, process.stderr


def test_a_running_session_accepts_runtime_settings(spark: SparkSession) -> None:
    """SQL settings are changed. A fixed setting that already has the value is accepted."""
    before = spark.conf.get("spark.sql.shuffle.partitions")
    try:
        assert ss.session(**{"spark.sql.shuffle.partitions": 5, "spark.master": "local[*]"}) is spark
        assert spark.conf.get("spark.sql.shuffle.partitions") == "5"
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", str(before))


def test_settings_fixed_at_startup_are_refused(spark: SparkSession) -> None:
    """The error names them all, and no setting is changed."""
    before = spark.conf.get("spark.sql.shuffle.partitions")
    settings = {"spark.sql.shuffle.partitions": "5", "spark.master": "local[3]", "spark.sql.warehouse.dir": "/x"}
    with pytest.raises(SessionError) as caught:
        ss.session(**settings)
    message = str(caught.value)
    assert "spark.master is local[*], not local[3]" in message
    assert "spark.sql.warehouse.dir" in message
    assert "spark.sql.shuffle.partitions" not in message
    assert spark.conf.get("spark.sql.shuffle.partitions") == before


def test_a_complete_session_causes_no_warning(spark: SparkSession, recwarn: pytest.WarningsRecorder) -> None:
    """The embedded session has all settings."""
    assert all(spark.conf.get(key) == value for key, value in capture_settings().items())
    advise(spark)
    assert not [warning for warning in recwarn if warning.category is StreamStateWarning]
