"""The worker process itself: how it starts, how it is reached, and how it ends."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import IO, Any

from streamstate.errors import SparkConnectError
from streamstate.snapshots.calls.progress_callback import report_progress

PYTHON = "STREAMSTATE_WORKER_PYTHON"
"""The environment variable with the Python of the worker, if this one's has no classic PySpark."""

# With these, PySpark would be a client of Spark Connect there too, or use the JVM of this process.
_OF_CONNECT = (
    "SPARK_REMOTE", "SPARK_LOCAL_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "SPARK_API_MODE",
    "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET",
)  # fmt: skip
_MODULE = "streamstate.snapshots.spark.worker"
_PATIENCE = 15.0
"""Seconds that a worker has to end by itself."""


@dataclass(frozen=True)
class WorkerProcess:
    """A worker process of this one, which ends with it."""

    program: subprocess.Popen[bytes]
    address: Any
    key: bytes
    log: IO[bytes]
    connection: Connection
    """The connection of the main threads of both."""
    owner: int = field(default_factory=os.getpid)

    @classmethod
    def start(cls) -> WorkerProcess:
        """Start a worker.

        Raises:
            SparkConnectError: it does not start.
        """
        report_progress("starting a worker process with a classic session")
        key, log = secrets.token_bytes(32), tempfile.TemporaryFile(prefix="streamstate-worker-")  # noqa: SIM115 (it lives as long as the worker)
        environment = {name: value for name, value in os.environ.items() if name not in _OF_CONNECT}
        program = subprocess.Popen(
            [python(), "-P", "-m", _MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=environment,
            start_new_session=True,  # an interrupt in the terminal is for this process, which passes it on
        )
        try:
            assert program.stdin is not None
            assert program.stdout is not None
            program.stdin.write(key.hex().encode() + b"\n")
            program.stdin.flush()
            version, _, address = program.stdout.readline().decode().strip().partition(" ")
            program.stdout.close()
            if not address:
                program.wait(_PATIENCE)
                raise SparkConnectError(_did_not_start(_output(log)))
            _check_version(version)
            connection = Client(address, authkey=key)
            connection.send((_search_path(), str(Path.cwd())))
            return cls(program, address, key, log, connection)
        except (OSError, EOFError) as error:
            _kill(program)
            raise SparkConnectError(_did_not_start(_output(log) or str(error))) from error
        except BaseException:
            _kill(program)
            raise

    @property
    def alive(self) -> bool:
        """True if this process started it, and it runs."""
        return self.owner == os.getpid() and self.program.poll() is None

    def connect(self) -> Connection:
        """Return one more connection."""
        return Client(self.address, authkey=self.key)

    def interrupt(self) -> None:
        """Interrupt what its main thread does."""
        with suppress(ProcessLookupError):
            os.kill(self.program.pid, signal.SIGINT)

    def wait(self) -> None:
        """Wait until it has ended by itself, or end it."""
        try:
            self.program.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            _kill(self.program)

    def kill(self) -> None:
        """End it at once; its Java ends with it."""
        _kill(self.program)

    def end(self) -> None:
        """End it, and wait until it has ended."""
        if self.owner != os.getpid():
            return
        self.connection.close()
        assert self.program.stdin is not None
        with suppress(OSError):
            self.program.stdin.close()
        self.wait()
        self.log.close()

    def obituary(self, call: str) -> str:
        """Return the error's message for a call that the worker did not answer."""
        with suppress(subprocess.TimeoutExpired):
            self.program.wait(_PATIENCE)
        code = self.program.poll()
        how = "" if code is None else f" ({signal.Signals(-code).name})" if code < 0 else f" (exit status {code})"
        last = _output(self.log).splitlines()[-1:]
        printed = f"\nIts last output: {last[0]}" if last else ""
        return (
            f"The worker process with the classic Spark session has ended{how}, and {call} with it.{printed}\n"
            "Call it again: the next call starts another worker. Objects that the old one held are gone."
        )


def python() -> str:
    """Return the Python that workers run."""
    return os.environ.get(PYTHON) or sys.executable


def _search_path() -> list[str]:
    """Return where the worker looks for modules first: where this process does; another Python has its own packages."""
    entries = [str(Path(entry).absolute()) for entry in sys.path]
    if python() == sys.executable:
        return entries
    return [entry for entry in entries if "site-packages" not in entry and not entry.startswith(sys.base_prefix)]


def _check_version(version: str) -> None:
    own = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if version != own:
        raise SparkConnectError(
            f"The worker's Python is {version}, and this one is {own}: code cannot be sent between them.\n"
            f"Set {PYTHON} to a Python {own} that has streamstate[spark]."
        )


def _did_not_start(output: str) -> str:
    last = output.splitlines()[-1:] or ["it ended without a message"]
    return (
        f"The call needs a classic Spark session, and the worker process for it did not start: {last[0]}\n"
        f"It runs {python()}. Install streamstate[spark] there, or set {PYTHON} to the path of a Python that has it."
    )


def _output(log: IO[bytes]) -> str:
    if log.closed:
        return ""
    log.seek(0)
    return log.read().decode(errors="replace").strip()


def _kill(program: subprocess.Popen[bytes]) -> None:
    program.kill()
    program.wait()
    for stream in (program.stdin, program.stdout):
        if stream is not None:
            with suppress(OSError):
                stream.close()
