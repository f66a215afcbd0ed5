"""Faults and damages, drawn at random from a seed."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from faults.shim import ALWAYS, CHANGES, Action, Call, Fault, Kind

# The calls of a capture that can fail with each error, according to the manual pages.
_ERRORS = {
    errno.EIO: CHANGES,
    errno.ENOSPC: Kind.OPEN | Kind.WRITE | Kind.SYNC | Kind.RENAME | Kind.LINK | Kind.MKDIR,
    errno.EMFILE: Kind.OPEN,
}
_READ_ERRORS = (errno.EIO, errno.EMFILE)


@dataclass(frozen=True)
class Seen:
    """A run without a fault, such as a capture, from whose calls faults are drawn."""

    changes: list[Call]
    reads: int
    seconds: float

    @classmethod
    def recorded(cls, folder: Path, run: Callable[[Path, Kind], tuple[list[Call], float]]) -> Seen:
        """Run twice, each in a folder of its own; the run returns the calls of a kind, and how long it took."""
        reads, _ = run(folder / "reads", Kind.READ)
        changes, seconds = run(folder / "changes", CHANGES)
        return cls(changes, len(reads), seconds)


@dataclass(frozen=True)
class Drawn:
    """A fault at a call, or a SIGKILL after some seconds."""

    fault: Fault | None = None
    kill_after: float | None = None

    @property
    def kills(self) -> bool:
        """True if the fault kills the process."""
        return self.fault is None or self.fault.kills

    @property
    def kind(self) -> str:
        """The kind under which the fault is counted."""
        if self.fault is None:
            return "kill at a moment"
        if self.kills:
            return self.fault.action.name.lower().replace("_", " ")
        reading = " on reading" if self.fault.counted is Kind.READ else ""
        return errno.errorcode[self.fault.error] + reading

    def __str__(self) -> str:
        return f"kill after {self.kill_after} s" if self.fault is None else str(self.fault)


def draw_fault(random: Random, seen: Seen, part: float = 1.0) -> Drawn:
    """Draw a fault for a capture of the given share of the epochs."""
    calls = seen.changes[: max(1, int(len(seen.changes) * part))]
    what = random.random()
    if what < 0.1:
        return Drawn(kill_after=round(random.uniform(0.05, seen.seconds * part), 3))
    if what < 0.25:
        commits = [call for call in calls if call.commits] or calls
        action = random.choice([Action.KILL_BEFORE, Action.KILL_AFTER])
        return Drawn(Fault(action, random.choice(commits).number))
    if what < 0.5:
        return _kill(random, calls)
    if what < 0.6:
        error = random.choice(_READ_ERRORS)
        at = random.randint(1, max(1, int(seen.reads * part)))
        times = random.choice([1, 1, 3, ALWAYS])
        return Drawn(Fault(Action.FAIL, at, Kind.READ, Kind.READ, error, times))
    return _error(random, calls)


def _kill(random: Random, calls: list[Call]) -> Drawn:
    action = random.choice([Action.KILL_BEFORE, Action.KILL_AFTER, Action.TORN])
    chosen = calls if action is not Action.TORN else [call for call in calls if call.kind is Kind.WRITE] or calls
    return Drawn(Fault(action, random.choice(chosen).number))


def _error(random: Random, calls: list[Call]) -> Drawn:
    error = random.choice(list(_ERRORS))
    call = random.choice([call for call in calls if call.kind & _ERRORS[error]] or calls)
    # A full disk accepts what still fits before it fails.
    short = error == errno.ENOSPC and call.kind is Kind.WRITE and random.random() < 0.5
    times = random.choice([1, 1, 1, 3, ALWAYS]) + short
    return Drawn(Fault(Action.SHORT if short else Action.FAIL, call.number, _ERRORS[error], CHANGES, error, times))


def at_every_commit(seen: Seen) -> list[Drawn]:
    """A kill right before and right after each commit."""
    commits = [call.number for call in seen.changes if call.commits]
    return [Drawn(Fault(action, at)) for at in commits for action in (Action.KILL_BEFORE, Action.KILL_AFTER)]


@dataclass(frozen=True)
class Damage:
    """A file with one byte flipped, or truncated to a length (0: emptied)."""

    file: str
    flipped: int | None = None
    mask: int = 0
    length: int = 0

    def inflict(self, store: Path) -> None:
        """Damage the file."""
        file = store / self.file
        content = bytearray(file.read_bytes())
        if self.flipped is None:
            del content[self.length :]
        else:
            content[self.flipped] ^= self.mask
        file.write_bytes(content)

    @property
    def kind(self) -> str:
        """The kind under which the damage is counted."""
        what = "flip" if self.flipped is not None else "truncate" if self.length else "empty"
        return f"{what} {category(self.file)}"

    def __str__(self) -> str:
        how = f"byte {self.flipped} ^ {self.mask:#x}" if self.flipped is not None else f"cut to {self.length} bytes"
        return f"{self.file}: {how}"


def category(file: str) -> str:
    """The category of a store's file."""
    name = Path(file).name
    if "_delta_log" not in file:
        return "data"
    if name == "_last_checkpoint":
        return name
    if name.endswith(".checkpoint.parquet"):
        return "log checkpoint"
    return "log entry" if name.endswith(".json") and Path(name).stem.isdigit() else "side file"


def draw_damage(random: Random, store: Path) -> Damage:
    """Draw a damage: first the category of the file, so that rare categories are damaged too."""
    files: dict[str, list[Path]] = {}
    # In the order of writing, because names differ between runs and the draws must not.
    for file in sorted(filter(Path.is_file, store.rglob("*")), key=lambda file: (file.parent, file.stat().st_mtime_ns)):
        files.setdefault(category(str(file.relative_to(store))), []).append(file)
    likely = {"data": 4, "log entry": 4}
    kinds = sorted(files)
    chosen = random.choice(files[random.choices(kinds, [likely.get(kind, 2) for kind in kinds])[0]])
    name, size = str(chosen.relative_to(store)), chosen.stat().st_size
    what, where, mask = random.random(), int(random.random() * size), random.randint(1, 255)
    if what < 0.65:
        return Damage(name, flipped=where, mask=mask)
    return Damage(name, length=where if what < 0.9 else 0)
