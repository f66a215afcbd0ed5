"""Rounds of kills and pauses in one chain of owners over one checkpoint: ``python -m availability.kill_series FOLDER``.

Run it in ``tests``. Each round disturbs the owner of the query, its standby, or both, waits until all input is
committed and captured, checks, and prints a JSON line. What survives is the owner of the next round, and gets a new
standby. ``--rounds N`` adds rounds to those that the folder has; at the end, everything is compared with a run that was
never disturbed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import drilled
import pandas as pd
import psutil
from input_files import in_turn
from pyspark.sql import SparkSession

import streamstate as ss
from availability import chained
from availability.owners import write_file
from streamstate.operations.availability.lease import Lease
from streamstate.operations.availability.standby import ENDED, FAILED, READY, Standby, StandbyTask
from streamstate.operations.drill.processes import _processes_of, kill_session
from streamstate.operations.drill.task import pickled
from streamstate.snapshots.store.layout import Layout

LASTS = 2.0
DISTURBANCES = {"primary": 4, "standby": 2, "both": 1, "pause": 3, "pause python": 1, "pause java": 1}
"""What may happen in a round, with weights. A pause is longer than the lease."""
EARLY = 0.1
"""The share of rounds that do not wait until the standby is warm."""
ROUND_SECONDS = 180.0
_ROOT = Path(__file__).parents[2]
_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=256m"


def environment(folder: Path) -> dict[str, str]:
    """Variables of the processes; Java starts quickly, where there is a class archive."""
    archive = _ROOT / ".venv" / ".done" / "spark.jsa"
    shared = f" -XX:SharedArchiveFile={archive} -Xlog:disable" if archive.exists() else ""
    return {
        "SPARK_SUBMIT_OPTS": os.environ.get("SPARK_SUBMIT_OPTS") or _JAVA + shared,
        "PYTHONPATH": os.pathsep.join(item or str(Path.cwd()) for item in sys.path),
        "TMPDIR": str(folder / "tmp"),
    }


@dataclass
class Member:
    """A process of the chain, which leads a session."""

    process: subprocess.Popen[bytes]
    standby: Standby | None = None
    paused: tuple[psutil.Process, ...] = ()
    resume_at: float = 0.0
    """When to end its pause, by the clock of :func:`time.monotonic`."""
    must_end_by: float | None = None
    """When it has to have ended by itself, after a pause."""

    def state(self) -> str | None:
        """The state of a standby; None for a process that started as the owner."""
        return None if self.standby is None else self.standby.status().state


class Chain:
    """The processes, the files, and what was seen of them."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.seed, self.checkpoint = folder, seed, folder / "checkpoint"
        for name in ("input", "out", "committed", "tmp"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        os.environ.update(environment(folder))
        self.files = sum(1 for _ in (folder / "input").glob("*.parquet"))
        self.members: dict[int, Member] = {}
        self.lease = Lease.of(Layout.at(folder / "store"), chained.NAME)
        self.logs: dict[str, tuple[int, int, bytes]] = {}
        """The files of Spark's logs as first seen."""
        self.planned: dict[int, int] = {}
        """The offset of the source at the end of each epoch."""
        with suppress(FileNotFoundError):
            for line in (folder / "planned").read_text().splitlines():
                epoch, offset = map(int, line.split())
                self.planned[epoch] = offset
        self._standby_task = StandbyTask(
            name=chained.NAME,
            store=str(folder / "store"),
            checkpoint=str(self.checkpoint),
            build_query=pickled(partial(chained.build, folder)),
            sink=pickled(partial(chained.write_rows, folder)),
        )

    def feed(self, files: int) -> None:
        """Add input files, each for an epoch."""
        for number in range(self.files, self.files + files):
            write_file(self.folder / "input", number)
        self.files += files

    def start_owner(self) -> None:
        """Start a process that starts the query, once nobody else owns it."""
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, chained.__file__, str(self.folder), str(LASTS)],
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.members[process.pid] = Member(process)

    def start_standby(self) -> None:
        """Start a standby."""
        standby = Standby(self._standby_task)
        self.members[standby.process.pid] = Member(standby.process, standby)

    def owner(self) -> int | None:
        """The process that holds the lease, if it lives."""
        newest = self.lease.newest()
        if newest is None or newest.released is not None:
            return None
        process = int(newest.holder.split()[1])
        return process if process in self.members else None

    def others(self) -> list[int]:
        """The processes that do not own the query, and are not expected to end."""
        owner = self.owner()
        return [pid for pid, member in self.members.items() if pid != owner and member.must_end_by is None]

    def kill(self, pid: int) -> None:
        """Kill a process and all that it started."""
        kill_session(pid)
        member = self.members.pop(pid)
        member.process.wait()
        if member.standby is not None:
            shutil.rmtree(member.standby._folder, ignore_errors=True)
            for fork in self.folder.glob(f".checkpoint-{member.standby._file._path.rpartition('/')[2]}"):
                shutil.rmtree(fork, ignore_errors=True)

    def pause(self, pid: int, which: str, seconds: float) -> None:
        """Pause all processes of a member, or only its Python or its Java, for some time."""
        member, found = self.members[pid], _processes_of(pid)
        if which == "python":
            found = [process for process in found if process.pid == pid]
        for process in found:
            with suppress(psutil.NoSuchProcess):  # a short one, such as a chmod of Java's
                if which != "java" or process.name() == "java":
                    process.suspend()
        member.paused, member.resume_at = tuple(found), time.monotonic() + seconds

    def keep(self) -> None:
        """Note what the files say, end pauses that are over, remove processes that have ended, and start what lacks."""
        self._note_logs()
        for pid, member in [*self.members.items()]:
            if member.paused and time.monotonic() >= member.resume_at:
                for process in member.paused:
                    with suppress(psutil.NoSuchProcess):
                        process.resume()
                member.paused, member.must_end_by = (), time.monotonic() + 60
            if not member.paused and member.process.poll() is not None:
                self.kill(pid)
            elif member.must_end_by is not None:
                assert time.monotonic() < member.must_end_by, f"process {pid} has not ended after its pause"
        if self.owner() is None and not self.others():
            self.start_owner()

    def settle(self, *, warm: bool) -> None:
        """Wait until there is an owner that has committed all input, and a standby."""
        end = time.monotonic() + ROUND_SECONDS
        while not (self.drained() and self._stood_by(warm=warm)):
            if self.owner() is not None and not self.others():
                self.start_standby()
            self._wait(end, "an owner and a standby")

    def _stood_by(self, *, warm: bool) -> bool:
        if self.owner() is None or len(self.members) < 2:
            return False
        standbys = [self.members[pid].standby for pid in self.others()]
        for standby in filter(None, standbys):
            status = standby.status()
            assert status.state not in (ENDED, FAILED) or standby.process.poll() is None, str(status)
            if not warm or (status.state == READY and (status.epoch is not None or status.error is not None)):
                return True
        return False

    def _wait(self, end: float, what: str) -> None:
        self.keep()
        if time.monotonic() > end:
            log = (self.folder / "log").read_text(errors="replace")[-2000:]
            states = {pid: str(member.standby and member.standby.status()) for pid, member in self.members.items()}
            raise TimeoutError(f"{what}: owner {self.owner()}, {states}, {self.committed()} committed\n{log}")
        time.sleep(0.03)

    def _note_logs(self) -> None:
        for log in ("offsets", "commits"):
            for file in (self.checkpoint / log).glob("[0-9]*"):
                name = f"{log}/{file.name}"
                if name in self.logs:
                    continue
                with suppress(FileNotFoundError):
                    self.logs[name] = _contents(file)
                    if log == "offsets" and int(file.name) not in self.planned:
                        offset = json.loads(self.logs[name][2].decode().splitlines()[-1])["logOffset"]
                        self.planned[int(file.name)] = offset
                        with (self.folder / "planned").open("a") as noted:
                            noted.write(f"{file.name} {offset}\n")

    def committed(self) -> int:
        """The newest committed epoch."""
        return max((int(file.name) for file in self.checkpoint.glob("commits/[0-9]*")), default=-1)

    def drained(self) -> bool:
        """Check that all input is committed."""
        self._note_logs()
        newest = self.committed()
        if newest not in self.planned or (self.checkpoint / "offsets" / str(newest + 1)).exists():
            return False
        return sum(1 for batch in self.batches().values() if batch <= self.planned[newest]) == self.files

    def batches(self) -> dict[str, int]:
        """The files that the source has read, with the offset that each belongs to."""
        found = {}
        for file in (self.checkpoint / "sources" / "0").glob("[0-9]*"):
            with suppress(FileNotFoundError):
                for line in file.read_text().splitlines()[1:]:
                    entry = json.loads(line)
                    found[Path(entry["path"]).name] = int(entry["batchId"])
        return found

    def run(self, number: int) -> dict[str, Any]:
        """Run a round, and return what happened."""
        chance = random.Random(f"{self.seed} {number}")
        (what,) = chance.choices([*DISTURBANCES], [*DISTURBANCES.values()])
        warm, began = chance.random() >= EARLY, time.monotonic()
        self.settle(warm=warm)
        self.feed(chance.randint(1, 3))
        until = time.monotonic() + chance.uniform(0, 0.6)
        while time.monotonic() < until:
            self.keep()
            time.sleep(0.01)
        owner, others = self.owner(), self.others()
        ready = all(self.members[pid].state() == READY for pid in others)
        before, at = self.committed(), time.time()
        paused = self._disturb(what, owner, others, chance)
        self.feed(chance.randint(2, 3))
        end = time.monotonic() + ROUND_SECONDS
        while not self.drained() or self.owner() is None or any(one.paused for one in self.members.values()):
            self._wait(end, f"{what}: all input")
        first = self.checkpoint / "commits" / str(before + 1)
        took = first.stat().st_mtime - at
        newest = self.lease.newest()
        self.check()
        return {
            "round": number,
            "what": what,
            "paused": paused,
            "warm": ready,
            "takeover": round(took, 2),
            "owner_changed": self.owner() != owner,
            "term": None if newest is None else newest.number,
            "epochs": self.committed() + 1,
            "files": self.files,
            "seconds": round(time.monotonic() - began, 1),
        }

    def _disturb(self, what: str, owner: int | None, others: list[int], chance: random.Random) -> float | None:
        """Disturb, and return the seconds of a pause."""
        kind, _, which = what.partition(" ")
        if kind == "pause":
            seconds = chance.uniform(1.2, 3) * LASTS
            if owner is not None:
                self.pause(owner, which, seconds)
            return round(seconds, 1)
        killed = [owner] if what == "primary" else others if what == "standby" else [owner, *others]
        chance.shuffle(killed)
        for pid in killed:
            if pid is not None:
                self.kill(pid)
        if what == "both":
            starts = [self.start_owner, self.start_standby]
            chance.shuffle(starts)
            for start in starts:
                start()
        return None

    def check(self) -> None:
        """Check everything that must hold after a round."""
        self._check_logs()
        self._check_results()
        self._check_owners()
        last = self.committed()
        history = ss.open_store(self.folder / "store")[chained.NAME]
        end = time.monotonic() + 60
        while (captured := history.captured()) != [*range(last + 1)]:
            self._wait(end, f"epochs {sorted({*range(last + 1)} - {*captured})} to be captured")

    def _check_logs(self) -> None:
        """Each epoch has one plan and one commit, which never change."""
        for name, seen in self.logs.items():
            with suppress(FileNotFoundError):  # Spark has purged it
                assert _contents(self.checkpoint / name) == seen, f"{name} was written again"
        assert sorted(self.planned) == [*range(self.committed() + 1)]

    def results(self) -> dict[int, dict[str, set[str]]]:
        """The results of each epoch, with the processes that wrote each."""
        found: dict[int, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        for file in (self.folder / "out").glob("*.json"):
            epoch, writer, _ = file.stem.split("-")
            found[int(epoch)][file.read_text()].add(writer)
        return found

    def _check_results(self) -> None:
        """Every epoch has results, and those that were written twice are the same."""
        results = self.results()
        assert sorted(results) == [*range(self.committed() + 1)], "results are missing"
        different = [epoch for epoch, texts in results.items() if len(texts) > 1]
        assert not different, f"the results of {different} were written differently"

    def _check_owners(self) -> None:
        """An epoch is committed by one process, which wrote its results; owners follow each other."""
        owners: dict[int, set[str]] = defaultdict(set)
        for file in (self.folder / "committed").iterdir():
            for line in file.read_text().split():
                owners[int(line)].add(file.name)
        results = self.results()
        for epoch, processes in owners.items():
            assert len(processes) == 1, f"epoch {epoch} was committed by {processes}"
            assert processes <= set().union(*results[epoch].values()), f"epoch {epoch}: {processes} wrote no results"
        terms = [process for process, _ in groupby(owners[epoch].copy().pop() for epoch in sorted(owners))]
        assert len(terms) == len(set(terms)), "an owner has come back"

    def close(self) -> None:
        """Kill what still runs."""
        for pid in [*self.members]:
            self.kill(pid)

    def stop(self) -> None:
        """Stop the query where it runs, and end all processes."""
        owner = self.owner()
        if owner is not None and self.members[owner].standby is not None:
            self.members[owner].process.terminate()
            self.members[owner].process.wait(120)
        self.close()


def _contents(file: Path) -> tuple[int, int, bytes]:
    found = file.stat()
    return found.st_ino, found.st_mtime_ns, file.read_bytes()


def compare(chain: Chain, spark: SparkSession) -> dict[str, Any]:
    """Compare every epoch of a chain with a run that was never disturbed, over the same input of each epoch.

    A process that is killed between noting a file and planning an epoch makes the next epoch read two files.
    """
    from oracle import compare as compare_with_spark

    whole = chain.folder / "whole"
    shutil.rmtree(whole, ignore_errors=True)
    for name in ("input", "out"):
        (whole / name).mkdir(parents=True)
    batches, last, begin = chain.batches(), chain.committed(), -1
    merged = 0
    for epoch in range(last + 1):
        names = sorted(name for name, batch in batches.items() if begin < batch <= chain.planned[epoch])
        begin, merged = chain.planned[epoch], merged + (len(names) > 1)
        file = whole / "input" / f"{epoch:05}.parquet"
        pd.concat([pd.read_parquet(chain.folder / "input" / name) for name in names]).to_parquet(file)
        in_turn(file, epoch)
    read = sum(len(pd.read_parquet(file)) for file in (whole / "input").iterdir())
    assert read == 21 * chain.files, "input was lost"
    frame = drilled.counts(whole / "input")
    writer = frame.writeStream.outputMode("update").option("checkpointLocation", str(whole / "checkpoint"))
    writer = writer.foreachBatch(partial(chained.write_rows, whole)).trigger(availableNow=True)
    writer.start().awaitTermination()
    results = chain.results()
    for epoch in range(last + 1):
        (expected,) = (whole / "out").glob(f"{epoch}-*.json")
        assert [*results[epoch]] == [expected.read_text()], f"the results of epoch {epoch} differ"
    ss.Checkpoint(whole / "checkpoint").capture(whole / "store", chained.NAME)
    left, right = (ss.open_store(folder / "store")[chained.NAME] for folder in (whole, chain.folder))
    assert left.captured() == right.captured() == [*range(last + 1)]
    for epoch in range(last + 1):
        assert _state(left, epoch) == _state(right, epoch), f"the state of epoch {epoch} differs"
    newest: Any = _At(right, last)
    assert compare_with_spark(spark, whole / "checkpoint", newest) == 1
    assert compare_with_spark(spark, chain.checkpoint, newest) == 1
    return {"compared": last + 1, "epochs_of_several_files": merged, "files": chain.files}


class _At:
    """A history, of which only one epoch is looked at."""

    def __init__(self, history: Any, epoch: int) -> None:
        self._history, self._epoch = history, epoch
        self.at = history.at

    def captured(self) -> list[int]:
        """That epoch."""
        return [self._epoch]


def _state(history: Any, epoch: int) -> dict[str, Any]:
    snapshot = history.at(epoch)
    return {name: sorted(map(repr, snapshot.table(name).to_arrow().to_pylist())) for name in snapshot.tables()}


def series(folder: Path, rounds: int, seed: int) -> Iterator[dict[str, Any]]:
    """Add rounds to those that the folder has, and give what happened in each."""
    report = folder / "rounds.jsonl"
    done = len(report.read_text().splitlines()) if report.exists() else 0
    chain = Chain(folder, seed)
    try:
        if chain.files == 0:
            chain.feed(3)
        for number in range(done, done + rounds):
            happened = chain.run(number)
            with report.open("a") as file:
                file.write(json.dumps(happened) + "\n")
            yield happened
        chain.stop()
    finally:
        chain.close()


def main() -> None:
    """Run rounds, and compare."""
    parser = argparse.ArgumentParser(description="Kill and pause the owners of a query, and check.")
    parser.add_argument("folder", type=Path, help="where everything is; a series continues there")
    parser.add_argument("--rounds", type=int, default=10, help="how many rounds to add (10)")
    parser.add_argument("--seed", type=int, default=1, help="what happens in each round (1)")
    parser.add_argument("--no-compare", action="store_true", help="do not compare with an undisturbed run at the end")
    given = parser.parse_args()
    folder = given.folder.resolve()
    for happened in series(folder, given.rounds, given.seed):
        print(json.dumps(happened), flush=True)  # noqa: T201
    if not given.no_compare:
        settings = {"spark.sql.shuffle.partitions": "2", "spark.sql.streaming.minBatchesToRetain": "1000000"}
        print(json.dumps(compare(Chain(folder, given.seed), ss.session(**settings))), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
