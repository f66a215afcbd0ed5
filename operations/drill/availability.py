"""Drills of a query that a process owns under a lease, with a standby: killed, slow, or cut off from its store."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from streamstate.errors import QueryError, StreamStateError
from streamstate.operations.availability.lease import Lease
from streamstate.operations.availability.standby import FAILED, OWNER, READY, Standby, StandbyTask
from streamstate.operations.drill.drilled_query import DrilledQuery
from streamstate.operations.drill.late_files import LateFiles
from streamstate.operations.drill.outage import LocalOutage, Proxy, proxy
from streamstate.operations.drill.processes import DrillProcess, Killed, kill_session, killed_now
from streamstate.operations.drill.report import AvailabilityReport, Owner
from streamstate.operations.drill.scratch import Scratch
from streamstate.operations.drill.task import Task, pickled
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.spark.state_comparison import difference_of
from streamstate.snapshots.store.layout import Layout
from streamstate.state_inspect import open_store

NAME = "drilled"
"""The name of the query in the drill's store."""
LASTS = 2.0
"""The time to live of the lease, in seconds."""
SLOW, AWAY = 5.0, 3 * LASTS
"""Seconds for which something is slow, or the store away."""
_POLL_SECONDS = 0.05
_SETTLED = 0.5
"""Seconds after the last input in which an epoch without input may follow."""
_QUIET = 10.0
"""Seconds without an epoch after which a run with other epochs than the undisturbed one has ended."""
_PRIMARY = "streamstate.launch.drilled_primary"
_TAKES_OVER = ("query", "store", "partition")
"""After these, the standby runs the query."""
_MEANS = {
    "query": "all its processes at once, after it had written the results and before the commit",
    "standby": "all its processes at once, while the owner was in the epoch",
    "executor": "one of two",
    "slow sink": "the sink had written the results and did not return",
    "slow source": "the files of the next epochs came later",
    "slow task": "one of two executors was suspended while it ran tasks",
}


class _Outage(Protocol):
    means: str

    def begin(self) -> None: ...

    def end(self) -> None: ...


@dataclass(frozen=True)
class Disturbance:
    """What is done to the query, and where its store is."""

    kind: str
    """As :attr:`AvailabilityReport.kill`."""
    standby: bool
    store: str
    storage_options: Mapping[str, str] | None = None

    @property
    def in_cluster(self) -> bool:
        """True if the owner needs executors of its own."""
        return self.kind in ("executor", "slow task")

    def links(self, place: Scratch) -> str | None:
        """Return the folder of the links that the query reads instead of files; None: it reads the files."""
        return str(place.folder / "links") if self.kind == "slow source" else None

    @property
    def lasts(self) -> float:
        """The time to live of the lease; with six processes at once, a small machine may not renew a short one."""
        return LASTS * 3 if self.in_cluster else LASTS


@dataclass
class AvailabilityDrill:
    """A drill in progress. The query waits in the sink, in the epoch of the disturbance, until the standby is ready."""

    start: Callable[..., DrillProcess]
    """Starts a process of the drill: its name, what is going on, and changes of the task."""
    place: Scratch
    what: Disturbance
    after: int
    keep: bool
    terms: dict[int, tuple[float, str]] = field(default_factory=dict)
    """When each term of the lease was seen first, and its holder."""

    def __post_init__(self) -> None:
        self._query = DrilledQuery(
            str(self.place.folder / "notes"),
            str(self.place.folder / "query"),
            hold=None if self.what.links(self.place) else self.after + 1,
            computed=not self.what.in_cluster,
            links=self.what.links(self.place),
        )
        self._lease = Lease.of(Layout.at(self.what.store, self.what.storage_options), NAME)

    def run(self, whole: DrillProcess, task: Task) -> AvailabilityReport:
        """Run the query, disturb it, and compare; ``whole`` is the undisturbed run, which waits for the comparison."""
        links = self._query.links
        late = None if links is None else LateFiles(Path(links), self.place.undisturbed, self.after)
        with ExitStack() as stack:
            outage, through = self._outage(stack)
            primary = stack.enter_context(
                self.start(
                    "drilled",
                    f"running the query again, to disturb it in epoch {self.after + 1}",
                    module=_PRIMARY,
                    store=self.what.store,
                    storage_options=through,
                    lease=self.what.lasts if self.what.standby else None,
                    drilled=vars(self._query),
                )
            )
            primary.wait("started")
            direct = through if self.what.kind == "store" else self.what.storage_options
            standby = stack.enter_context(self._standby(direct)) if self.what.standby else None
            self._await(primary, standby, "waiting until the standby is ready", lambda: self._ready(standby))
            status = None if standby is None else str(standby.status())
            disturb = {"store": self._away, "partition": self._away}.get(self.what.kind, self._disturb)
            killed = killed_now(self.place.drilled, time.time())  # nothing goes on before it is disturbed
            at, until = disturb(primary, standby, outage)
            if late is not None:
                late.arrive()
            during, may_end = "going on to the end of the input", self.what.kind in _TAKES_OVER
            self._await(primary, standby, during, lambda: self._over(task), may_end=may_end)
            self._end(primary, standby)
            missing = self._missing()
            (self.place.folder / "compare").touch()
            whole.during = "comparing"
            compared = whole.wait("compared").facts
            return self._report(
                primary,
                standby,
                replace(killed, at=at),
                lasted=until - at,
                status=status,
                missing=missing,
                compared=compared,
                outage=outage,
            )

    def _outage(self, stack: ExitStack) -> tuple[_Outage | None, Mapping[str, str] | None]:
        """Return what can take the store away, and the options with which the owner reaches it."""
        options = self.what.storage_options
        if self.what.kind not in ("store", "partition"):
            return None, options
        if options is None or "://" not in self.what.store:
            return LocalOutage(Path(self.what.store)), options
        made: Proxy = stack.enter_context(proxy(options))
        return made, made.options

    @contextmanager
    def _standby(self, options: Mapping[str, str] | None) -> Iterator[Standby]:
        """Start a standby, and kill it at the end."""
        folder = self.place.folder / "standby"
        folder.mkdir()
        standby = Standby(
            StandbyTask(
                name=NAME,
                store=self.what.store,
                checkpoint=str(self.place.drilled),
                build_query=pickled(self._query.build),
                storage_options=options,
                sink=pickled(self._query.write),
            ),
            folder=folder,
        )
        try:
            yield standby
        finally:
            kill_session(standby.process.pid)
            standby.process.wait()

    def _ready(self, standby: Standby | None) -> bool:
        waits = self._query.held() or self._query.hold is None
        if not waits or not (self.place.drilled / "commits" / str(self.after)).exists():
            return False
        if standby is None:
            return True
        status = standby.status()
        warm = status.epoch is not None or status.error is not None or self.after < 1
        return status.state == READY and warm

    def _await(
        self,
        primary: DrillProcess,
        standby: Standby | None,
        during: str,
        condition: Callable[[], bool],
        *,
        may_end: bool = False,
    ) -> None:
        """Wait for a condition; if the standby fails, or the owner ends though it may not, raise a QueryError."""

        def reached() -> bool:
            self._look()
            time.sleep(_POLL_SECONDS)
            if standby is not None and (status := standby.status()).state == FAILED and not self._killed(standby):
                raise QueryError(f"The {status}")
            ended = primary.seen("ended")
            if ended is not None and not may_end:
                raise QueryError(f"The query ended by itself, {ended.facts['state']}: {ended.facts['error']}")
            return condition()

        primary.during = during
        if not may_end:
            primary.wait_until(reached)
            return
        while not reached():
            primary.check_time()

    def _killed(self, standby: Standby) -> bool:
        return self.what.kind == "standby" and standby.process.poll() is not None

    def _look(self) -> None:
        """Note a new term of the lease."""
        with suppress(OSError, StreamStateError):  # the store may be away
            newest = self._lease.newest()
            if newest is not None:
                self.terms.setdefault(newest.number, (time.time(), newest.holder))

    def _disturb(self, primary: DrillProcess, standby: Standby | None, _: object) -> tuple[float, float]:
        """Kill something, or slow it down; return when that began and ended."""
        at = until = time.time()
        executors = primary.executors() if self.what.in_cluster else []
        if self.what.kind == "query":
            primary.kill()
        elif self.what.kind == "standby" and standby is not None:
            kill_session(standby.process.pid)
        elif self.what.kind == "executor":
            executors[0].kill()
        elif self.what.kind == "slow task":
            executors[0].suspend()
            self._query.let_go()
            time.sleep(SLOW)
            executors[0].resume()
            until = time.time()
        else:
            time.sleep(SLOW)
            until = time.time()
        self._query.let_go()
        return at, until

    def _away(self, primary: DrillProcess, standby: Standby | None, outage: _Outage | None) -> tuple[float, float]:
        """Take the store away; the sink returns once the lease has run out."""
        assert outage is not None
        assert standby is not None
        at = time.time()
        outage.begin()
        try:
            time.sleep(LASTS)
            self._query.let_go()
            if self.what.kind == "partition":
                first = self.place.drilled / "commits" / str(self.after + 1)
                self._await(primary, standby, "waiting for the standby to take over", first.exists, may_end=True)
            time.sleep(max(at + AWAY - time.time(), 0))
        finally:
            outage.end()
        return at, time.time()

    def _over(self, task: Task) -> bool:
        """Check that all input is processed: up to the undisturbed run's last offsets, or no more has come for long."""
        drilled, whole = CheckpointFiles(self.place.drilled), CheckpointFiles(self.place.undisturbed)
        ours, last = drilled.committed(), self._last(task)
        if not ours or ours[-1] <= self.after:
            return False
        if task.epochs is not None:
            return ours[-1] >= last
        if (self.place.drilled / "offsets" / str(ours[-1] + 1)).exists():
            return False
        mine, theirs = drilled.planned(ours[-1]), whole.planned(last)
        same = ours[-1] >= last and mine is not None and theirs is not None and mine.sources == theirs.sources
        waited = time.time() - (self.place.drilled / "commits" / str(ours[-1])).stat().st_mtime
        return waited > (_SETTLED if same else _QUIET)

    def _last(self, task: Task) -> int:
        epochs = CheckpointFiles(self.place.undisturbed).committed()
        return max(epoch for epoch in epochs if task.epochs is None or epoch < task.epochs)

    def _end(self, primary: DrillProcess, standby: Standby | None) -> None:
        """Stop the query where it runs; its owner captures all that it has committed."""
        if standby is not None and standby.status().state == OWNER:
            standby.stop()
        if self.what.kind != "query":
            (self.place.folder / "stop").touch()
            primary.during = "waiting until the owner has stopped"
            primary.wait("stopped")

    def _missing(self) -> dict[str, tuple[int, ...]]:
        """Return the epochs that are missing in each place where they have to be."""
        checkpoint = CheckpointFiles(self.place.drilled)
        committed, results = checkpoint.committed(), self._query.results()
        captured = open_store(self.what.store, storage_options=self.what.storage_options)[NAME].captured()
        every = range(committed[-1] + 1)
        places = {"commits": committed, "results": results, "history": captured}
        return {name: tuple(epoch for epoch in every if epoch not in {*found}) for name, found in places.items()}

    def _owners(self, primary: DrillProcess, standby: Standby | None) -> tuple[Owner, ...]:
        results = self._query.results()
        tokens = {int(holder.split()[1]): token for token, (_, holder) in sorted(self.terms.items())}
        named = {primary.pid: "primary", **({} if standby is None else {standby.process.pid: "standby"})}
        owners = []
        for pid, name in named.items():
            committed = [noted["epoch"] for noted in self._query.noted(pid) if "epoch" in noted]
            wrote = [epoch for epoch, times in sorted(results.items()) for process, _ in times if process == pid]
            if committed or wrote or pid in tokens:
                owners.append(Owner(tokens.get(pid, 0), f"{name} (process {pid})", tuple(committed), tuple(wrote)))
        return tuple(sorted(owners, key=lambda owner: owner.token))

    def _report(
        self,
        primary: DrillProcess,
        standby: Standby | None,
        killed: Killed,
        *,
        lasted: float,
        status: str | None,
        missing: Mapping[str, tuple[int, ...]],
        compared: Mapping[str, Any],
        outage: _Outage | None,
    ) -> AvailabilityReport:
        results = self._query.results()
        expected = replace(self._query, folder=str(self.place.folder / "whole")).results()
        different = [
            epoch
            for epoch, times in results.items()
            if compared["aligned"]
            and epoch <= compared["compared_at"]
            and {text for _, text in times} != {text for _, text in expected.get(epoch, [])}
        ]
        committed = (self.place.drilled / "commits" / str(self.after + 1)).stat().st_mtime
        ended = primary.seen("ended") if self.what.kind in ("store", "partition") else None
        noticed = primary.seen("noticed")
        phases = {} if standby is None else self._phases(standby, killed.at, committed)
        return AvailabilityReport(
            kill=self.what.kind,
            after=self.after,
            in_flight=killed.planned > self.after,
            half_written=killed.half_written,
            epochs_replayed=int(bool(phases)),
            seconds_to_recover=committed - killed.at,
            phases=phases,
            loading_seconds=None,
            epochs=len(CheckpointFiles(self.place.drilled).committed()),
            **{**compared, "differences": tuple(map(difference_of, compared["differences"]))},
            directory=self.place.folder if self.keep else None,
            standby=status,
            means=_MEANS[self.what.kind] if outage is None else outage.means,
            lasted=lasted,
            stopped_after=None if ended is None else ended.at - killed.at,
            owners=self._owners(primary, standby),
            lost=missing,
            doubled=tuple(epoch for epoch, times in sorted(results.items()) if len(times) > 1),
            different=tuple(different),
            noticed=None if noticed is None else noticed.facts["status"],
        )

    def _phases(self, standby: Standby, at: float, committed: float) -> dict[str, float]:
        """Return the parts of a takeover; none if there was none."""
        pid = standby.process.pid
        acquired = [seen for seen, holder in self.terms.values() if holder.split()[1] == str(pid)]
        starts = [noted["at"] for noted in self._query.noted(pid) if "started" in noted]
        if not acquired or not (starts := [start for start in starts if start > acquired[0]]):
            return {}
        return {
            "until the standby had acquired the lease": acquired[0] - at,
            "to start the query": starts[0] - acquired[0],
            "to run the epoch": committed - starts[0],
        }
