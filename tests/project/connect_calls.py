"""Calls of the public API in a process that uses Spark Connect; prints what came of each as JSON.

Arguments: the server (``local[2]``: one in this process; ``nowhere``: a client that connects to none; ``thin``: the
same without the modules that pyspark-client lacks), a recorded checkpoint, and an empty folder. A process with a server
then prints its port and waits until its input ends.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from streamstate.operations.rescaling.advice import rescale_advice

NOT_IN_THIN_CLIENT = ("py4j", "pyspark.core", "pyspark.java_gateway", "pyspark.sql.classic")
"""Modules of PySpark that pyspark-client lacks; by the second PySpark tells which of them it is."""


def connected(remote: str) -> Any:
    """A Spark Connect session."""
    from pyspark.sql import SparkSession

    if remote == "thin":
        vars(sys)["modules"] |= dict.fromkeys(NOT_IN_THIN_CLIENT)
    if remote in ("nowhere", "thin"):
        from pyspark.sql.connect.session import SparkSession as Client

        os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"  # as the builder, which waits for the server, does
        return Client("sc://localhost:1")
    local: dict[str, Any] = {"spark.ui.enabled": "false"} if remote.startswith("local") else {}
    return SparkSession.builder.remote(remote).config(map=local).getOrCreate()


def outcome(call: Callable[[], Any]) -> str:
    """``done``, or the error; and whether the call has started Java."""
    before, java = _gateway(), _children()
    try:
        call()
        found = "done"
    except BaseException as error:  # noqa: BLE001 (an interrupt would be an outcome too)
        found = f"{type(error).__name__}: {error}"
    started = _gateway() is not before or _children() != java
    return f"{found} and Java was started" if started else found


def _gateway() -> Any:
    import pyspark

    return pyspark.SparkContext._gateway if hasattr(pyspark, "SparkContext") else None


def _children() -> list[int]:
    import psutil

    return [child.pid for child in psutil.Process().children()]


def calls(spark: Any, checkpoint: Path, folder: Path) -> dict[str, Callable[[], Any]]:
    """Calls by name: first those that need no Spark, then those that need a classic session where the query runs."""
    ss: Any = import_module("streamstate")  # some calls are given what needs no value
    from streamstate.operations.checkup import examine
    from streamstate.widgets.state_browser.model import StateBrowser

    store, frame = folder / "store", spark.readStream.format("rate").load()

    def opened() -> Any:
        return ss.open_store(store)

    def followed() -> None:
        capture = ss.Checkpoint(checkpoint).follow(store, "q")
        capture.wait(4, 60)
        capture.stop()

    def viewed() -> None:
        view = StateBrowser(opened()["q"])
        view._repr_mimebundle_()
        view.close()

    without: dict[str, Callable[[], Any]] = {
        "capture": partial(ss.Checkpoint(checkpoint).capture, store, "q"),
        "follow": followed,
        "read": lambda: opened()["q"].live().table().to_arrow(),
        "sql": lambda: opened().sql("SELECT count(*) FROM q").to_pandas(),
        "diff": lambda: opened()["q"].diff(0, 4).summary(),
        "view": viewed,
        "doctor": partial(examine, checkpoint, store),
        "fork": partial(ss.Checkpoint(checkpoint).fork, folder / "fork", at=3),
        "export": lambda: opened()["q"].export(folder / "export"),
        "rescale_advice": lambda: rescale_advice(opened()["q"]),
        "retain": lambda: opened()["q"].retain(last=4),
        "compact": lambda: opened()["q"].compact(),  # noqa: PLW0108 (there is no store yet)
        "shared": lambda: ss.shared(store, "limit", "bigint", init=3).set(4),
    }
    needing: dict[str, Callable[[], Any]] = {
        "record": lambda: ss.record(frame, folder / "recording"),
        "recorded": lambda: ss.recorded(folder / "recording"),
        "shared_column": partial(ss.shared_column, "limit", store),
    }
    return {**without, **{f"needs Spark: {name}": call for name, call in needing.items()}}


def through_connect(spark: Any, folder: Path) -> dict[str, Callable[[], Any]]:
    """Calls that a Spark Connect session serves, if it reaches a server."""
    import streamstate as ss

    return {
        "to_spark": lambda: ss.open_store(folder / "store").sql("SELECT * FROM q").to_spark().count(),
        "to_spark in the session": lambda: ss.open_store(folder / "store").sql("FROM q").to_spark(spark).count(),
        "frames": lambda: ss.open_store(folder / "store").sql("FROM f", frames={"f": spark.range(3)}).to_arrow(),
    }


def main(remote: str, checkpoint: str, folder: str) -> None:
    """Make the calls and print their outcomes."""
    os.environ["SPARK_TESTING"] = "1"  # the server takes a free port
    os.environ["SPARK_CONNECT_AUTHENTICATE_TOKEN"] = "token"
    spark = connected(remote)
    made = calls(spark, Path(checkpoint), Path(folder))
    found = {name: outcome(call) for name, call in made.items()}
    if remote not in ("nowhere", "thin"):
        found |= {name: outcome(call) for name, call in through_connect(spark, Path(folder)).items()}
    port = None
    if remote.startswith("local"):
        from pyspark.sql.connect.client import DefaultChannelBuilder

        port = DefaultChannelBuilder.default_port()
    print(json.dumps([found, port]), flush=True)  # noqa: T201 (read by the parent process)
    if port is not None:
        sys.stdin.read()
    elif remote in ("nowhere", "thin"):
        atexit.unregister(spark.client._on_exit)  # PySpark waits minutes for the server that there is not


def run(remote: str, *paths: Path) -> subprocess.Popen[str]:
    """This program in a process of its own."""
    command = [sys.executable, __file__, remote, *map(str, paths)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
