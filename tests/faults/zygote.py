"""Pre-warmed processes: a zygote imports everything, uses nothing, and forks a child for each job.

A line of standard input is a list of jobs to run concurrently; the line of output has the result of each. The
process forks before it uses deltalake, DuckDB or the JVM, because none of them survives a fork.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, NoReturn

from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Job:
    """A function of ``faults.jobs``, by name, and its arguments.

    ``kill_after`` and ``timeout`` are in seconds: the first is a fault, the second detects a job that hangs.
    """

    do: str
    arguments: dict[str, Any] = field(default_factory=dict)
    kill_after: float | None = None
    timeout: float = 300.0


@dataclass(frozen=True)
class Ending:
    """The end of a job: a result, an error, a signal, or a timeout."""

    result: Any = None
    error: str | None = None
    """The exception's name and message."""
    clear: bool = False
    """Whether the exception was one of streamstate's."""
    trace: str = ""
    signal: int | None = None
    hung: bool = False
    seconds: float = 0.0

    @property
    def at(self) -> str:
        """The line of the package that raised the error."""
        lines = [line.strip() for line in self.trace.splitlines() if "/streamstate/" in line]
        return lines[-1] if lines else ""

    @property
    def killed(self) -> bool:
        """True if it was killed with SIGKILL, and not for hanging."""
        return self.signal == signal.SIGKILL and not self.hung

    def __str__(self) -> str:
        if self.hung:
            return f"hung for {self.seconds:.0f} s"
        if self.signal is not None:
            return f"died of {signal.Signals(self.signal).name}"
        return f"raised {' '.join(self.error.split())[:200]}" if self.error else f"returned {self.result!r}"


class Zygote:
    """The parent's side: starts the process, sends it jobs, and stops it."""

    def __init__(self, library: Path, spark: SparkSession, log: Path) -> None:
        gateway = spark.sparkContext._gateway
        assert gateway is not None
        parameters = gateway.gateway_parameters
        here = Path(__file__).resolve().parent
        environment = os.environ | {
            "LD_PRELOAD": str(library),
            "PYSPARK_GATEWAY_PORT": str(parameters.port),
            "PYSPARK_GATEWAY_SECRET": str(parameters.auth_token),
            "PYTHONPATH": os.pathsep.join([str(here.parent), *filter(None, [os.environ.get("PYTHONPATH")])]),
        }
        self.log = log
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "faults.zygote"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=environment,
            )

    def run(self, jobs: Sequence[Job]) -> list[Ending]:
        """Run jobs concurrently, and wait for all of them."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([asdict(job) for job in jobs]) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the zygote ended: {self.log.read_text()[-2000:]}"
        return [Ending(**ending) for ending in json.loads(line)]

    def run_one(self, job: Job) -> Ending:
        """Run a single job."""
        return self.run([job])[0]

    def close(self) -> None:
        """Stop the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=300)
        self._process.stdout.close()


@dataclass
class _Child:
    job: Job
    process: int
    answer: IO[bytes]
    started: float
    output: bytes = b""
    hung: bool = False

    def due(self) -> float:
        """The time at which to kill it."""
        return self.started + (self.job.timeout if self.job.kill_after is None else self.job.kill_after)

    def kill(self) -> None:
        self.hung = self.job.kill_after is None
        self.started = float("inf")
        os.kill(self.process, signal.SIGKILL)


def _start(job: Job) -> _Child:
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(reading)
        _run_child(job, writing)
    os.close(writing)
    return _Child(job, process, os.fdopen(reading, "rb", buffering=0), time.monotonic())


def _run_child(job: Job, answer: int) -> NoReturn:
    """Run the job and exit immediately: Python's exit handlers must not reach the shared JVM."""
    from faults import jobs
    from streamstate.errors import StreamStateError

    ending: dict[str, Any]
    try:
        ending = {"result": getattr(jobs, job.do)(**job.arguments)}
    except BaseException as error:  # noqa: BLE001 — a panic in Rust is no Exception, and is what is looked for
        text = f"{type(error).__name__}: {error}"
        ending = {"error": text, "clear": isinstance(error, StreamStateError), "trace": traceback.format_exc()}
    output = json.dumps(ending).encode()
    while output:
        output = output[os.write(answer, output) :]
    os._exit(0)


def _run(jobs: list[Job]) -> list[dict[str, Any]]:
    started = time.monotonic()
    children = [_start(job) for job in jobs]
    with selectors.DefaultSelector() as waiting:
        for child in children:
            waiting.register(child.answer, selectors.EVENT_READ, child)
        while waiting.get_map():
            rest = min(key.data.due() for key in waiting.get_map().values()) - time.monotonic()
            for key, _ in waiting.select(None if rest == float("inf") else max(rest, 0)):
                more = key.data.answer.read(1 << 16)
                key.data.output += more
                if not more:
                    waiting.unregister(key.fileobj)
            for key in list(waiting.get_map().values()):
                if key.data.due() <= time.monotonic():
                    key.data.kill()
    return [_ending(child, time.monotonic() - started) for child in children]


def _ending(child: _Child, seconds: float) -> dict[str, Any]:
    child.answer.close()
    _, status = os.waitpid(child.process, 0)
    died_of = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
    ending = json.loads(child.output) if died_of is None else {}
    return {**ending, "signal": died_of, "hung": child.hung, "seconds": seconds}


def main() -> None:
    """Serve until standard input ends."""
    # The output of libraries must not be mixed with the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    from faults import jobs

    jobs.warm()
    for line in sys.stdin:
        print(json.dumps(_run([Job(**job) for job in json.loads(line)])), file=answers, flush=True)


if __name__ == "__main__":
    main()
