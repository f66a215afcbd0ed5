"""A Spark Connect server of its own process, as ``start-connect-server.sh`` of a full Spark starts it."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
_CONNECT = ("SPARK_REMOTE", "SPARK_API_MODE", "SPARK_CONNECT_MODE_ENABLED", "SPARK_CONNECT_AUTHENTICATE_TOKEN")


@contextmanager
def connect_server(
    folder: Path, hidden: Path | None = None, spark: Path | None = None
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The address of a server that answers, and its process; the server ends with the block.

    Only the server has the contents of the folder ``hidden``, a disk that is mounted in its own namespace. ``spark`` is
    the folder of the package pyspark of another version.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = {
        "spark.driver.memory": "700m",
        "spark.ui.enabled": "false",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    options = [text for key, value in settings.items() for text in ("--conf", f"{key}={value}")]
    programs = Path(sys.executable).parent if spark is None else spark / "bin"
    submit = ["bash", str(programs / "spark-class"), "org.apache.spark.deploy.SparkSubmit"]
    command = [
        *submit,
        "--class",
        _CLASS,
        "--master",
        "local[2]",
        "--driver-memory",
        "700m",
        *options,
        "spark-internal",
    ]
    if hidden is not None:
        mount = f'mount -t tmpfs none {shlex.quote(str(hidden))} && exec "$@"'
        command = [
            "unshare",
            "--mount",
            *(() if os.getuid() == 0 else ("--map-root-user",)),
            "sh",
            "-c",
            mount,
            "sh",
            *command,
        ]
    environment = {key: value for key, value in os.environ.items() if key not in _CONNECT}
    environment["PYSPARK_PYTHON"] = sys.executable
    if spark is not None:
        environment["SPARK_HOME"] = str(spark)
        environment.pop("SPARK_SUBMIT_OPTS", None)  # an archive of this version's classes
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=folder)
    try:
        _wait_for(port, server, folder / "server.log")
        yield f"sc://localhost:{port}", server
    finally:
        server.terminate()
        server.wait(timeout=30)


def _wait_for(port: int, server: subprocess.Popen[bytes], log: Path, timeout: float = 120) -> None:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline and server.poll() is None:
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError(f"The server did not start:\n{log.read_text()[-2000:]}")
