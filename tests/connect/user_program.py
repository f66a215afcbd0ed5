"""One user's program, as a process: prints the answers of the calls of :mod:`connect.user_calls` as JSON.

Arguments: the server (``nowhere``: a client that connects to none; ``local[2]``; or a URL), the folder of the query,
an empty folder, and which calls: ``few``, ``most``, ``all``, or ``captures`` for those of :mod:`connect.capture_calls`.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
from pathlib import Path
from typing import Any

from connect import capture_calls
from connect.user_calls import answers, drilled


def session(server: str) -> Any:
    """The user's session."""
    from pyspark.sql import SparkSession

    if server == "nowhere":
        from pyspark.sql.connect.session import SparkSession as Client

        os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"  # as the builder, which waits for the server, does
        client = Client("sc://localhost:1")
        atexit.unregister(client.client._on_exit)  # PySpark waits minutes for the server that there is not
        return client
    return SparkSession.builder.remote(server).getOrCreate()


def main(server: str, folder: str, made: str, calls: str) -> None:
    """Print the answers."""
    spark, folders = session(server), (Path(folder), Path(made))
    captures = calls == "captures"
    found = capture_calls.answers(spark, *folders) if captures else answers(spark, *folders, calls)
    if calls == "all":
        found["drill"] = drilled(folders[0])
    print(json.dumps(found))  # noqa: T201 (read by the parent process)


if __name__ == "__main__":
    main(*sys.argv[1:])
