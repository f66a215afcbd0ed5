"""A lease has one holder at a time, whatever pauses, clocks, kills and late writes do; its tokens only grow."""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from capturing.buckets import Bucket, bucket  # noqa: F401 (a fixture)

from availability import contender
from availability.lease_world import worlds
from availability.owners import until
from streamstate.errors import InvalidArgumentError, NotOwnerError
from streamstate.operations.availability import lease as lease_module
from streamstate.operations.availability.lease import FAILED, HANDED_OVER, STOPPED, Lease
from streamstate.operations.availability.lease_files import lease_files
from streamstate.operations.availability.local_processes import have_ended, identified
from streamstate.operations.availability.standby import READY, StandbyStatus, StatusFile, standby_ready
from streamstate.snapshots.store.layout import Layout


class Clock:
    """A clock that a test sets."""

    now = 100.0

    def __call__(self) -> float:
        """The time in seconds."""
        return self.now


@pytest.fixture
def clock() -> Clock:
    """The clock of every process of a test."""
    return Clock()


@pytest.fixture
def process(tmp_path: Path, clock: Clock) -> Callable[[], Lease]:
    """Returns the lease as one more process sees it."""
    layout = Layout.at(tmp_path / "store")
    return lambda: Lease(lease_files(layout), layout.lease("delays"), lasts=6, clock=clock)


def test_a_store_that_is_away_is_not_a_new_one(process: Callable[[], Lease], clock: Clock, tmp_path: Path) -> None:
    """Its folder is gone, as that of a disk that was unmounted: nobody begins the first term again meanwhile."""
    holder, challenger = process(), process()
    assert holder.try_acquire()
    assert not challenger.try_acquire()
    (tmp_path / "store").rename(tmp_path / "away")
    clock.now += 1
    assert [lease.try_acquire() for lease in (challenger, holder)] == [False, False]
    assert challenger.seen
    assert challenger.newest() is None
    assert not holder.renew()
    (tmp_path / "store").rename(tmp_path / "other")
    (tmp_path / "away").rename(tmp_path / "store")
    clock.now += 6
    assert challenger.try_acquire()
    assert challenger.token == 2


@pytest.mark.parametrize("drift", [1.0, 1.45])
def test_one_holder_at_a_time(drift: float) -> None:
    """Three processes, interleaved step by step: pauses anywhere, failed and late writes, clocks of different speed."""
    tokens = 0
    for world in worlds(40, drift=drift):
        world.run(1500)
        assert world.overlaps == []
        assert world.tokens == sorted(set(world.tokens))
        tokens += len(world.tokens)
    assert tokens > 200


def test_the_simulation_finds_overlaps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A holder that trusts its lease for as long as a challenger waits is caught."""
    monkeypatch.setattr(lease_module, "_HELD", 1.0)
    assert any(world.run(1500).overlaps for world in worlds(40, drift=1.45))


def test_a_silent_holder_is_followed(process: Callable[[], Lease], clock: Clock) -> None:
    """A challenger waits for the whole time to live, from its own first look on, and gets the next token."""
    holder, challenger = process(), process()
    assert holder.try_acquire()
    clock.now += 3
    assert not challenger.try_acquire()
    clock.now += 5.9
    assert not challenger.try_acquire()
    assert not holder.holds
    clock.now += 0.1
    assert challenger.try_acquire()
    assert (holder.token, challenger.token) == (1, 2)


def test_a_renewal_keeps_challengers_out(process: Callable[[], Lease], clock: Clock) -> None:
    """Each starts the wait again, however many looks a challenger has had."""
    holder, challenger = process(), process()
    holder.try_acquire()
    for _ in range(20):
        clock.now += 1
        assert holder.renew()
        assert not challenger.try_acquire()
    assert holder.holds


def test_a_late_renewal_does_not_count(process: Callable[[], Lease], clock: Clock) -> None:
    """After a pause, a holder neither holds the lease nor gets it back by renewing it."""
    holder = process()
    holder.try_acquire()
    clock.now += 4
    assert not holder.holds
    assert not holder.renew()
    with pytest.raises(NotOwnerError, match="was not renewed in time"):
        holder.check()


def test_a_renewal_that_takes_too_long_does_not_count(
    process: Callable[[], Lease], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A challenger may have looked before it was written."""
    holder = process()
    holder.try_acquire()
    write = holder.files.replace

    def slowly(path: str, text: str) -> None:
        clock.now += 3
        write(path, text)

    monkeypatch.setattr(holder.files, "replace", slowly)
    clock.now += 3.9
    assert not holder.renew()
    assert not holder.holds


def test_a_failed_write_that_arrives_late_hides_no_renewal(
    process: Callable[[], Lease], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a put whose answer was lost: a challenger would take the lease for silent."""
    holder, challenger = process(), process()
    holder.try_acquire()
    failed: list[tuple[str, str]] = []

    def fail(path: str, text: str) -> None:
        failed.append((path, text))
        raise OSError("the connection was reset")

    write = holder.files.replace
    monkeypatch.setattr(holder.files, "replace", fail)
    with pytest.raises(OSError, match="reset"):
        holder.renew()
    monkeypatch.setattr(holder.files, "replace", write)
    assert not challenger.try_acquire()
    assert holder.renew()
    newest = challenger.newest()
    write(*failed[0])
    assert challenger.newest() == newest


def test_a_newer_term_ends_a_lease(process: Callable[[], Lease], clock: Clock) -> None:
    """Even if the clock of a holder stood still, as in a frozen virtual machine."""
    holder, challenger = process(), process()
    holder.try_acquire()
    now = clock.now
    challenger.try_acquire()
    clock.now += 6
    assert challenger.try_acquire()
    clock.now = now
    assert holder.holds
    assert not holder.renew()
    with pytest.raises(NotOwnerError, match="term 2 of the lease has begun"):
        holder.check()


def test_a_released_lease_is_free_at_once(process: Callable[[], Lease]) -> None:
    """The reason stays, for those that wait."""
    holder, challenger = process(), process()
    holder.try_acquire()
    assert not challenger.try_acquire()
    holder.release(FAILED)
    assert not holder.holds
    newest = challenger.newest()
    assert newest is not None
    assert newest.released == FAILED
    assert challenger.try_acquire()


def test_a_lease_is_handed_over(process: Callable[[], Lease], clock: Clock) -> None:
    """The process with that name may begin the next term at once; the others once it was silent."""
    holder, other, named = process(), process(), process()
    named.name = "named"
    holder.try_acquire()
    holder.release(HANDED_OVER, to="named")
    assert not other.try_acquire()
    clock.now += 5.9
    assert not other.try_acquire()
    assert named.try_acquire()
    named.release(HANDED_OVER, to="nobody")
    assert not other.try_acquire()
    clock.now += 6
    assert other.try_acquire()
    assert other.token == 3


def test_the_next_owner_learns_how_the_query_is_started(process: Callable[[], Lease]) -> None:
    """The term says it, with its holder and its time to live."""
    holder = process()
    holder.launch = {"mode": "update"}
    holder.try_acquire()
    newest = process().newest()
    assert newest is not None
    assert (newest.number, newest.lasts, newest.launch, newest.released) == (1, 6, {"mode": "update"}, None)
    assert newest.holder.startswith(f"process {os.getpid()} on ")


@pytest.fixture
def sleepers() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Two processes that do nothing."""
    started = [subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) for _ in range(2)]
    yield started
    for process in started:
        process.kill()
        process.wait()


def test_a_holder_that_has_ended_on_this_machine_is_followed_at_once(
    process: Callable[[], Lease], sleepers: list[subprocess.Popen[bytes]]
) -> None:
    """All its processes must have ended; one that nobody has waited for has ended too, one that is paused has not."""
    holder, challenger = process(), process()
    holder.processes = identified([each.pid for each in sleepers])
    assert holder.processes is not None
    assert holder.try_acquire()
    sleepers[0].kill()
    sleepers[0].wait()
    sleepers[1].send_signal(signal.SIGSTOP)
    assert not challenger.try_acquire()
    sleepers[1].kill()
    until(challenger.try_acquire)
    assert challenger.token == 2


def test_a_process_of_another_machine_or_container_has_not_ended(sleepers: list[subprocess.Popen[bytes]]) -> None:
    """A process id that is free here may be used there; one that was used again is another process."""
    known = identified([sleepers[0].pid])
    assert known is not None
    again = {**known, "started": {str(sleepers[1].pid): known["started"][str(sleepers[0].pid)] + "0"}}
    assert have_ended(again)
    assert not have_ended(known)
    sleepers[0].kill()
    sleepers[0].wait()
    assert have_ended(known)
    assert not have_ended({**known, "place": ["another boot", *known["place"][1:]]})
    assert not have_ended({**known, "started": {}})
    assert not have_ended(None)
    assert identified([sleepers[0].pid]) is None


def test_a_standby_that_died_is_not_ready(tmp_path: Path) -> None:
    """It must be heard of; one that lives says so again and again."""
    layout = Layout.at(tmp_path / "store")
    assert not standby_ready(layout, "delays", 0.3)
    dead, alive = (StatusFile(layout, "delays", f"standby.{name}") for name in ("dead", "alive"))
    dead.write(StandbyStatus(state=READY, beats=7))
    alive.write(StandbyStatus(state=READY, beats=2))
    assert not standby_ready(layout, "delays", 0.3)
    later = threading.Timer(0.3, alive.write, [StandbyStatus(state=READY, beats=3)])
    later.start()
    assert standby_ready(layout, "delays", 10)
    later.join()


@pytest.mark.parametrize("lasts", [0, -1, float("inf")])
def test_invalid_times_to_live(tmp_path: Path, lasts: float) -> None:
    """A lease lasts for some seconds."""
    with pytest.raises(InvalidArgumentError, match="expected its time to live in seconds"):
        Lease.of(Layout.at(tmp_path), "delays", lasts=lasts)


def test_elsewhere_no_lease_is_kept() -> None:
    """Files must be created exclusively."""
    with pytest.raises(InvalidArgumentError, match="on disk or in an object store"):
        Lease.of(Layout.at("hdfs://host/store"), "delays")


def test_a_lease_in_an_object_store(bucket: Bucket) -> None:
    """Terms are put only if they do not exist yet."""
    layout = Layout.at(f"{bucket.uri}/store", bucket.options)
    holder, challenger = Lease.of(layout, "delays"), Lease.of(layout, "delays")
    assert holder.try_acquire()
    assert holder.renew()
    assert not challenger.try_acquire()
    with pytest.raises(FileExistsError):
        challenger.files.create(f"{challenger.folder}/1", "")
    holder.release(STOPPED)
    assert challenger.try_acquire()
    assert challenger.token == 2


@pytest.fixture
def contenders(tmp_path: Path) -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    """Starts processes that contend for one lease, each with a log of its own."""
    started: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        script, log = contender.__file__, tmp_path / f"{len(started)}.log"
        started.append(subprocess.Popen([sys.executable, script, str(tmp_path / "lease"), str(log)]))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_processes_that_are_paused_and_killed(
    contenders: Callable[[], subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    """No two of them hold the lease at overlapping times."""
    chance, running, end = random.Random(0), [contenders(), contenders()], time.monotonic() + 15
    while time.monotonic() < end:
        victim = chance.choice(running)
        if chance.random() < 0.2:
            victim.kill()
            running[running.index(victim)] = contenders()
        else:
            victim.send_signal(signal.SIGSTOP)
            time.sleep(chance.uniform(0, 3 * contender.LASTS))  # a pause, not a wait
            victim.send_signal(signal.SIGCONT)
        time.sleep(chance.uniform(0, contender.LASTS))
    held: dict[int, list[float]] = {}
    holders: dict[int, set[Path]] = {}
    for log in tmp_path.glob("*.log"):
        for line in log.read_text().splitlines():
            token, at = line.split()
            held.setdefault(int(token), []).append(float(at))
            holders.setdefault(int(token), set()).add(log)
    spans = [(min(times), max(times)) for _, times in sorted(held.items())]
    assert len(spans) > 3
    assert all(len(logs) == 1 for logs in holders.values())
    assert all(end < begin for (_, end), (begin, _) in itertools.pairwise(spans))
