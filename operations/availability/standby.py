"""A process that stands by to take a query over, as seen from those that start it or ask for its status."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from streamstate.errors import QueryError, WaitTimeoutError
from streamstate.operations.availability.lease_files import LeaseFiles, lease_files
from streamstate.snapshots.spark.child_settings import child_environment, spark_settings
from streamstate.snapshots.store.layout import Layout

STARTING, READY, TAKING_OVER, OWNER, ENDED, FAILED = "starting", "ready", "taking over", "owner", "ended", "failed"
"""The states of a standby."""
_MODULE = "streamstate.launch.standby_process"
STATUS_PREFIX = "standby."
_POLL_SECONDS = 0.1
_SHOWN_CHARACTERS = 1000


@dataclass(frozen=True)
class StandbyStatus:
    """A standby at one moment.

    Attributes:
        state: 'starting', 'ready' (it would take over), 'taking over', 'owner' (it has taken over, and has committed an
            epoch or waits for input), 'ended' (the query was stopped, or the standby was), or 'failed'.
        epoch: the newest epoch that it has run in a fork, to be warm; None if none could be run yet.
        ready_since: when it became ready.
        takeovers: how often it has taken over.
        process: its process id, on the machine that it runs on.
        error: why it failed, or is not warm.
        beats: a number that grows while it waits: about once in the time to live of the lease.
        processes: what identifies its Python and Java.
    """

    state: str = STARTING
    epoch: int | None = None
    ready_since: datetime | None = None
    takeovers: int = 0
    process: int | None = None
    error: str | None = None
    beats: int = field(default=0, repr=False)
    processes: Mapping[str, Any] | None = field(default=None, repr=False)

    def __str__(self) -> str:
        """Return the status in one line."""
        ready, error = "", "" if self.error is None else f": {self.error}"
        if self.state == READY and self.ready_since is not None:
            warm = "" if self.epoch is None else f", warm at epoch {self.epoch}"
            ready = f" since {self.ready_since.astimezone():%H:%M:%S}{warm}"
        return f"standby {self.state}{ready}{error}"


@dataclass(frozen=True)
class StandbyTask:
    """What a standby needs to know; the rest it learns from the lease when it takes over."""

    name: str
    store: str
    checkpoint: str
    build_query: bytes
    """The pickled function."""
    storage_options: Mapping[str, str] | None = None
    sink: bytes | str | None = None
    """The sink, of a function its pickled form; None: as the lease says."""
    sink_options: Mapping[str, str] | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    """Spark's settings."""
    status: str = ""
    """The name of the file with its status, in the folder of the lease; the lease calls it that too."""
    term: int | None = None
    """The term of the lease after which it is to own the query, by a planned handover; None: it only stands by."""


class StatusFile:
    """The status of a standby, in the folder of the query's lease."""

    def __init__(self, layout: Layout, query: str, name: str) -> None:
        self._files: LeaseFiles = lease_files(layout)
        self._path = f"{layout.lease(query)}/{name}"

    def write(self, status: StandbyStatus) -> None:
        """Replace the status."""
        since = None if status.ready_since is None else status.ready_since.isoformat()
        self._files.replace(self._path, json.dumps({**asdict(status), "ready_since": since}))

    def read(self) -> StandbyStatus:
        """Return the status."""
        known: dict[str, Any] = json.loads(self._files.text(self._path) or "{}")
        since = known.get("ready_since")
        return StandbyStatus(**{**known, "ready_since": None if since is None else datetime.fromisoformat(since)})


def standby_ready(layout: Layout, query: str, within: float) -> bool:
    """Check that a query has a standby that is ready and lives: it must be heard of within some seconds."""
    first, end = _beats(layout, query), time.monotonic() + within
    while first and time.monotonic() < end:
        if any(beats > first.get(name, beats) for name, beats in _beats(layout, query).items()):
            return True
        time.sleep(_POLL_SECONDS)
    return False


def _beats(layout: Layout, query: str) -> dict[str, int]:
    """Return how often each standby that says it is ready was heard of."""
    names = [name for name in lease_files(layout).names(layout.lease(query)) if name.startswith(STATUS_PREFIX)]
    found = {name: StatusFile(layout, query, name).read() for name in names}
    return {name: status.beats for name, status in found.items() if status.state == READY}


class Standby:
    """A standby that this process has started; it outlives this process.

    Args:
        task: what it needs to know.
        folder: a folder for its temporary files; by default a new one.
    """

    def __init__(self, task: StandbyTask, *, folder: Path | None = None) -> None:
        self.name = task.name
        self._task = task
        self._folder = folder or Path(tempfile.mkdtemp(prefix="streamstate-standby-"))
        self._log = self._folder / "log"
        self.id = name = f"{STATUS_PREFIX}{uuid.uuid4().hex}"
        self._file = StatusFile(Layout.at(task.store, task.storage_options), task.name, name)
        settings = spark_settings(None, self._folder)
        given = pickle.dumps(replace(task, settings=settings, status=name))
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", _MODULE],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=child_environment(self._folder),
                start_new_session=True,  # no signal of this terminal reaches it
            )
        assert self.process.stdin is not None
        with self.process.stdin as stdin:
            stdin.write(given)

    def status(self) -> StandbyStatus:
        """Return the status."""
        ended = self.process.poll()  # before reading the last that it wrote
        status = self._file.read()
        if ended is None or status.state in (ENDED, FAILED):
            return status
        lines = self._log.read_text(errors="replace") if self._log.exists() else ""
        return replace(status, state=FAILED, error=lines.strip()[-_SHOWN_CHARACTERS:] or f"exit status {ended}")

    def wait(self, timeout: float = 300.0) -> StandbyStatus:
        """Wait until the standby is ready.

        Args:
            timeout: seconds after which to give up.

        Raises:
            QueryError: it has failed, or ended.
            WaitTimeoutError: it is not ready in time; it goes on.
        """
        deadline = time.monotonic() + timeout
        while (status := self.status()).state == STARTING:
            if time.monotonic() > deadline:
                raise WaitTimeoutError(f"The standby of {self.name} is not ready after {timeout:g} s.\n{status}")
            time.sleep(_POLL_SECONDS)
        if status.state in (ENDED, FAILED):
            raise QueryError(f"The {status}")
        return status

    def standby(self) -> Standby:
        """Start a process that stands by for this one, with the same code, once this one owns the query.

        Returns:
            A handle like this one.

        Raises:
            QueryError: it does not own the query.
        """
        if (state := self.status().state) != OWNER:
            raise QueryError(f"The standby of {self.name} is {state}, so none can stand by for it.\nStart it later.")
        return Standby(replace(self._task, term=None))

    def stop(self) -> None:
        """End the standby; if it has taken over, it stops the query, and captures what that has committed."""
        self.process.terminate()
        self.process.wait()

    def __repr__(self) -> str:
        return f"<Standby of {self.name}: {self.status()}>"
