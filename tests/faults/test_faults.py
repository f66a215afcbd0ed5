"""A capture that is killed at any point, or whose disk fails, loses, duplicates and tears nothing."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

import pytest

from faults.conftest import FULL, SEED, Processes
from faults.drawing import Drawn, Seen, at_every_commit, draw_fault
from faults.files import faulty, orphans, unfinished
from faults.inspection import Findings, inspect
from faults.queries import Workload
from faults.shim import Call, Control, Fault, Kind
from faults.zygote import Ending, Job, Zygote
from streamstate.errors import NotAStoreError, UnknownQueryError


@pytest.fixture(scope="session")
def seen(zygote: Zygote, workload: Workload, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """The calls of a capture without a fault, recorded in a second run with a warm JVM."""
    return Seen.recorded(tmp_path_factory.mktemp("seen"), partial(_seen, zygote, workload))


def _seen(zygote: Zygote, workload: Workload, store: Path, counted: Kind) -> tuple[list[Call], float]:
    control = Control(store.with_suffix(".control"), store, Fault(counted=counted))
    ending, control = _capture(zygote, workload, store, control)
    assert ending.error is None, ending.trace
    assert ending.result["by_spark"] == {}  # the faults meet what captures usually do
    return control.calls(), ending.seconds


@pytest.mark.exhaustive
def test_the_shim_sees_every_file_and_byte(seen: Seen) -> None:
    """A recorded call created each file of a capture and wrote each byte."""
    store = next(parent for parent in Path(seen.changes[0].path).parents if parent.name == "changes")
    left = {str(file): file.stat().st_size for file in store.rglob("*") if file.is_file()}
    put = {call.path for call in seen.changes if call.kind in (Kind.OPEN, Kind.LINK, Kind.RENAME)}
    assert left
    assert left.keys() <= put
    assert sum(call.size for call in seen.changes if call.kind is Kind.WRITE) >= sum(left.values())


@pytest.mark.slow
@pytest.mark.timeout(7200 if FULL else 1800)
def test_each_epoch_is_captured_once_despite_faults(
    processes: Processes, workload: Workload, seen: Seen, tmp_path: Path, figures: list[str]
) -> None:
    """Faults follow each other on one store: visible epochs are right, and the last capture completes them."""

    def run_round(zygote: Zygote, number: int) -> tuple[list[str], list[str]]:
        random = Random(f"{SEED}/{number}")
        trial = Trial(zygote, workload, tmp_path / str(number))
        for _ in range(random.choice([1, 1, 1, 2, 3, 4])):
            part = 1 - trial.visible / workload.expected.epochs
            if not part or not trial.suffer(draw_fault(random, seen, part)):
                break
        done, wrong = trial.end()
        left.append(trial.left)
        return done, wrong

    left: list[int] = []
    tally = processes.rounds(run_round, target=160 if FULL else 5)
    figures.append(f"faults fired: {tally.done.total()} ({_counted(tally.done)}); begun log entries left: {sum(left)}")
    tally.check()


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.timeout(7200 if FULL else 1800)
def test_a_commit_is_atomic_under_kills(
    processes: Processes, workload: Workload, seen: Seen, tmp_path: Path, figures: list[str]
) -> None:
    """A kill right before and right after each commit of a capture; the regular suite runs a few of them."""
    drawn = at_every_commit(seen)
    assert len(drawn) > 20
    if not FULL:
        drawn = Random(SEED).sample(drawn, 3)

    def run_round(zygote: Zygote, number: int) -> tuple[list[str], list[str]]:
        trial = Trial(zygote, workload, tmp_path / str(number))
        if not trial.suffer(drawn[number]):
            trial.wrong.append(f"{drawn[number]}: did not fire")
        return trial.end()

    tally = processes.rounds(run_round, number=len(drawn))
    figures.append(f"kills around every commit: {tally.done.total()} of {len(drawn)}")
    tally.check()


@dataclass
class Trial:
    """One store, from its first capture to the last."""

    zygote: Zygote
    workload: Workload
    folder: Path

    def __post_init__(self) -> None:
        self.folder.mkdir()
        self.store = self.folder / "store"
        self.visible = self.left = 0
        self.done: list[str] = []
        self.wrong: list[str] = []
        self._story: list[str] = []

    def suffer(self, drawn: Drawn) -> bool:
        """Capture with a fault, and check what is visible; return whether the fault fired."""
        control = Control(self.folder / "control", self.store, drawn.fault)
        ending, control = _capture(self.zygote, self.workload, self.store, control, drawn.kill_after)
        fired = ending.killed if drawn.fault is None else control.fired is not None
        self._story.append(f"{drawn} [{control.fired or 'no call'}] {ending}")
        if not fired:
            self._judge(ending.error is None and ending.signal is None and not ending.hung, "an end without a fault")
            return False
        self.done.append(drawn.kind)
        if drawn.kills:
            self._judge(ending.killed, "SIGKILL")
        else:
            unclear = ending.error is not None and not ending.clear
            self._judge(not (unclear or ending.hung or ending.signal), f"success or a clear error (at {ending.at})")
        self._found(_visible(self.store, self.workload, self.visible))
        return True

    def end(self) -> tuple[list[str], list[str]]:
        """Capture without a fault: every epoch is present once, and there are no other files."""
        ending, _ = _capture(self.zygote, self.workload, self.store)
        self._story.append(str(ending))
        self._judge(ending.error is None and not ending.signal, "the rest of the epochs")
        if ending.error is None and not ending.signal:
            self._found(inspect(self.store, self.workload.expected, self.workload.expected.epochs))
            self.wrong += faulty(self.store, self.workload.expected)
            self.wrong += [f"orphan: {file}" for file in orphans(self.store)]
        self.left = len(unfinished(self.store))
        shutil.rmtree(self.folder)
        story = "\n    then: ".join(self._story)
        return self.done, [f"{line}\n    after: {story}" for line in self.wrong[:1]] + self.wrong[1:]

    def _found(self, findings: Findings) -> None:
        self.visible = findings.visible
        self.wrong += findings.brief()

    def _judge(self, right: object, expected: str) -> None:
        if not right:
            self.wrong.append(f"not {expected}, but it {self._story[-1]}")


def _capture(
    zygote: Zygote, workload: Workload, store: Path, control: Control | None = None, kill_after: float | None = None
) -> tuple[Ending, Control]:
    control = control or Control(store.with_name("control"), store)
    arguments = {"checkpoint": str(workload.checkpoint), "store": str(store), "control": str(control.path)}
    return zygote.run_one(Job("capture", arguments, kill_after=kill_after)), control


def _visible(store: Path, workload: Workload, at_least: int) -> Findings:
    """Return what is visible; before the first epoch, the store or the query may not exist."""
    findings = inspect(store, workload.expected, at_least)
    nothing_yet = {NotAStoreError.__name__, UnknownQueryError.__name__}
    opened = findings.right or findings.refused or not findings.wrong.keys() <= nothing_yet
    return findings if at_least or opened else Findings()


def _counted(done: dict[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(done.items()))
