"""Contributions: what tasks of an epoch added, staged until the epoch is committed, then merged exactly once.

A task stages one file per operator and partition. Spark may run a task several times: attempts that failed, copies
that lost, a batch that a killed driver had begun. Of one operator and partition the newest attempt counts, and only of
the run that committed the epoch. An attempt that is not a task's first says so, because it may have nothing to add.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from streamstate.errors import VariableError
from streamstate.variables.transports.transport import Transport, number_in, numbers_among
from streamstate.variables.version_bytes import decoded_contribution
from streamstate.variables.version_log import VersionLog

RETRIED = "-"
"""The operator in a mark that earlier attempts of a task do not count."""
_STAGED = re.compile(r"(\d+)\.(\d+)\.([^.]+)" + r"\.(-?\d+)" * 4, re.ASCII)
# Runs that are long over are forgotten. With ``bounded(k)``, contributions of many runs may wait to be merged.
_RUNS = 1000


@dataclass(frozen=True, order=True)
class Staged:
    """Who staged a contribution.

    Attributes:
        epoch: in which epoch.
        run: in which run of the query.
        operator: what tells the place in the code from others.
        partition: of which partition.
        attempt: Spark's number of the attempt, which grows.
        worker: the Python process: two operators in one task have one each.
        stage: Spark's number of the stage, of which the task is.
    """

    epoch: int
    run: int
    operator: str
    partition: int
    attempt: int
    worker: int
    stage: int = -1

    @property
    def name(self) -> str:
        """Its name in the transport."""
        task = f"{self.partition}.{self.attempt}.{self.worker}.{self.stage}"
        return f"{self.epoch}.{self.run}.{self.operator}.{task}"

    @classmethod
    def of(cls, name: str) -> Staged | None:
        """Who staged what has a name; None if it is no name of a contribution."""
        found = _STAGED.fullmatch(name)
        if found is None:
            return None
        epoch, run, operator, *task = found.groups()
        return cls(int(epoch), int(run), operator, *map(int, task))


def stage_group(key: str, query: str) -> str:
    """Return the group in which a query's tasks stage contributions to a variable."""
    return f"stage/{key}/{quote(query, safe='')}"


def _runs_group(query: str) -> str:
    return f"runs/{quote(query, safe='')}"


def begin_run(transport: Transport, query: str, committed: int) -> int:
    """Number a run of a query that is about to start.

    ``committed`` is the newest epoch that the query has committed (−1: none); all later ones are this run's.
    """
    group = _runs_group(query)
    while True:
        known = sorted(numbers_among(transport.names(group)))
        run = (known[-1] if known else -1) + 1
        if transport.add(group, str(run), str(committed).encode()):
            # A run that committed nothing is not asked for.
            same = [old for old in known[-1:] if transport.get(group, str(old)) == str(committed).encode()]
            transport.remove(group, [str(old) for old in (*known[:-_RUNS], *same)])
            return run


def run_of(transport: Transport, query: str, epoch: int) -> int:
    """Return the run that committed an epoch: the last one that began before the epoch was committed."""
    group = _runs_group(query)
    for run in sorted(numbers_among(transport.names(group)), reverse=True):
        began_after = transport.get(group, str(run))
        if began_after is not None and number_in(began_after, transport, f"the run {run} of a query") < epoch:
            return run
    return 0


def take_in(log: VersionLog, query: str, committed: int) -> None:
    """Merge what a query's committed epochs have contributed to a variable, an epoch after another.

    Whoever calls it, and how often: an epoch's contributions are merged once. One version results for each epoch that
    contributed.
    """
    transport, group = log.transport, stage_group(log.declaration.key, query)
    names = transport.names(group)
    staged = [made for made in map(Staged.of, names) if made is not None and made.epoch <= committed]
    if not staged:
        return
    for epoch in sorted({made.epoch for made in staged}):
        run = run_of(transport, query, epoch)
        counted = _counted(made for made in staged if made.epoch == epoch and made.run == run)
        if counted:
            try:
                contribution = _merged(log, transport.get_all(group, [made.name for made in counted]))
                log.merge(query, epoch, contribution, len(counted))
            except (pa.ArrowException, ValueError, TypeError, ArithmeticError) as error:
                raise VariableError(
                    f"The contributions of epoch {epoch} to {log.name} cannot be merged into its value: {error}\n"
                    f"Set it to a value into which it can, {log.name}.set(…), then start the query again."
                ) from error
    transport.remove(group, [made.name for made in staged])


def _counted(staged: Iterable[Staged]) -> list[Staged]:
    """Return those of the newest attempt of each operator and partition, in a fixed order."""
    everything = sorted(staged)
    retried: dict[tuple[int, int], int] = {}
    for made in everything:
        if made.operator == RETRIED:
            task = made.stage, made.partition
            retried[task] = max(made.attempt, retried.get(task, -1))
    newest: dict[tuple[str, int], list[Staged]] = {}
    for made in everything:
        if made.operator == RETRIED or made.attempt < retried.get((made.stage, made.partition), -1):
            continue
        known = newest.setdefault((made.operator, made.partition), [])
        if known and known[0].attempt < made.attempt:
            known.clear()
        known.append(made)
    return [made for group in newest.values() for made in group]


def _merged(log: VersionLog, contributions: Iterable[bytes]) -> Any:
    merging, merged = log.declaration.merging, None
    for data in contributions:
        merged = merging.merged(merged, decoded_contribution(data, log.declaration))
    return merged
