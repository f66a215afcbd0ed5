"""What a reader of state sees while it changes: four ways to read, and what each of them promises.

A writer moves an amount from x to y in each epoch, so that x + y stays the same. Two readers read x, y and x again.
The anomalies are those of Berenson et al. 1995; S-QUERY (Verheijde et al. 2022) names live and snapshot reads of the
state of a stream processor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar, Literal, NamedTuple, TypeAlias

from streamstate.tutorials.simulation.protocol import Action, Invariant, Protocol
from streamstate.tutorials.simulation.scene import Scene, Tone

Level: TypeAlias = Literal["live", "committed", "snapshot", "replica"]
LEVELS: tuple[Level, ...] = ("live", "committed", "snapshot", "replica")
"""The operators' memory; the newest commit at each read; one commit for all reads; the same, in a copy that may lag."""
PROGRAM = "xyx"
"""What each reader reads, in order."""
TOTAL, MOVED = 100, 10


class Read(NamedTuple):
    """A value that a reader got.

    Args:
        key: what it read.
        value: the value.
        attempt: the attempt at an epoch that wrote it.
    """

    key: str
    value: int
    attempt: int


class Reader(NamedTuple):
    """A reader: what it has read, and the epoch that it was given at its begin.

    Args:
        reads: what it has read.
        epoch: the epoch; None: it has not begun.
        after: the newest epoch that a reader had seen when it began.
    """

    reads: tuple[Read, ...] = ()
    epoch: int | None = None
    after: int = 0


class Shared(NamedTuple):
    """A state of the simulation.

    Args:
        live: the values in memory, and the attempts that wrote them.
        commits: the values that each epoch committed, and the attempts that wrote them.
        attempt: the number of the present attempt.
        done: how many of the epoch's two writes are done.
        undone: attempts that failed.
        readers: the two readers.
        failures: how often the writer may still fail.
    """

    live: tuple[Read, Read]
    commits: tuple[tuple[Read, Read], ...]
    attempt: int
    done: int
    undone: tuple[int, ...]
    readers: tuple[Reader, Reader]
    failures: int


class SharedState(Protocol[Shared]):
    """A writer and two readers.

    Args:
        level: how the readers read.
        epochs: how many epochs the writer commits.
        failures: how often it may fail before a commit.

    Example:
        >>> from streamstate.tutorials.simulation import explore
        >>> trace = explore(SharedState("committed")).shortest("the sum holds")
        >>> trace.violations[-1].reason
        'Reader 1 has x = 100 and y = 10, which together are 110, and not 100.'
        >>> explore(SharedState("snapshot")).shortest("the sum holds") is None
        True
    """

    name: ClassVar[str] = "reading state that changes"

    def __init__(self, level: Level = "snapshot", *, epochs: int = 2, failures: int = 1) -> None:
        if level not in LEVELS:
            raise ValueError(f"Invalid level {level!r}: expected {', '.join(LEVELS)}.")
        self.level: Level = level
        self.epochs, self.failures = epochs, failures

    def start(self) -> Shared:
        """Return the first state: all of the amount is in x."""
        first = (Read("x", TOTAL, 0), Read("y", 0, 0))
        return Shared(first, (first,), 1, 0, (), (Reader(), Reader()), self.failures)

    def actions(self, state: Shared) -> list[Action]:
        """Return what can happen next."""
        return [*self._writer(state), *self._readers(state)]

    def _writer(self, state: Shared) -> Iterator[Action]:
        epoch = len(state.commits)
        if epoch > self.epochs:
            return
        if state.done < 2:
            yield Action(("write",), f"The writer changes {'xy'[state.done]} in epoch {epoch}")
        else:
            yield Action(("commit",), f"Epoch {epoch} is committed")
        if state.done and state.failures:
            yield Action(("fail",), f"The writer fails, and epoch {epoch} is undone", 0.4)

    def _readers(self, state: Shared) -> Iterator[Action]:
        newest = len(state.commits) - 1
        for number, reader in enumerate(state.readers):
            if reader.epoch is None:
                for epoch in range(max(0, newest - 1) if self.level == "replica" else newest, newest + 1):
                    where = f" with epoch {epoch}" if self.level in ("snapshot", "replica") else ""
                    yield Action(("begin", number, epoch), f"Reader {number + 1} begins{where}")
            elif len(reader.reads) < len(PROGRAM):
                yield Action(("read", number), f"Reader {number + 1} reads {PROGRAM[len(reader.reads)]}")

    def act(self, state: Shared, action: Action) -> Shared:
        """Return the state after an action."""
        match action.key:
            case ("write",):
                key = state.live[state.done]
                value = key.value + (MOVED if state.done else -MOVED)
                changed = Read(key.key, value, state.attempt)
                live = (state.live[0], changed) if state.done else (changed, state.live[1])
                return state._replace(live=live, done=state.done + 1)
            case ("commit",):
                return state._replace(commits=(*state.commits, state.live), attempt=state.attempt + 1, done=0)
            case ("fail",):
                undone = (*state.undone, state.attempt)
                again = state._replace(live=state.commits[-1], attempt=state.attempt + 1, done=0)
                return again._replace(undone=undone, failures=state.failures - 1)
            case ("begin", int(number), int(epoch)):
                seen = [reader.epoch or 0 for reader in state.readers if len(reader.reads) == len(PROGRAM)]
                return _with(state, number, Reader((), epoch, max(seen, default=0)))
            case (_, int(number)):
                reader = state.readers[number]
                found = self.seen(state, reader)[PROGRAM[len(reader.reads)] == "y"]
                return _with(state, number, reader._replace(reads=(*reader.reads, found)))
        raise ValueError(f"Unknown action {action.key}.")

    def seen(self, state: Shared, reader: Reader) -> tuple[Read, Read]:
        """Return x and y as a reader sees them now."""
        if self.level == "live":
            return state.live
        if self.level == "committed" or reader.epoch is None:
            return state.commits[-1]
        return state.commits[reader.epoch]

    def finished(self, state: Shared) -> bool:
        """Check that all epochs are committed and both readers have read."""
        return len(state.commits) > self.epochs and all(len(each.reads) == len(PROGRAM) for each in state.readers)

    @property
    def invariants(self) -> Mapping[str, Invariant[Shared]]:
        """What a reader may hope for."""
        return {
            "no read of what is undone": _each(_dirty),
            "reads repeat": _each(_fuzzy),
            "the sum holds": _each(_skewed),
            "time goes forward": _each(_backward),
        }

    def scene(self, state: Shared) -> Scene:
        """Return the picture of a state: memory, commits, and the two readers."""
        scene = Scene(430)
        epoch = len(state.commits)
        title = f"memory, epoch {epoch}" if epoch <= self.epochs else "memory"
        busy: Tone = "busy" if state.done else ""
        scene.box("live", 8, 8, 130, title, cells=_values(state.live), tone=busy)
        for number, values in enumerate(state.commits):
            scene.box(
                f"commit {number}", 152 + 92 * number, 8, 84, f"epoch {number}", cells=_values(values), tone="good"
            )
        for number, reader in enumerate(state.readers):
            pinned = "" if reader.epoch is None or self.level in ("live", "committed") else f", epoch {reader.epoch}"
            cells = [f"{key} = {value}" for key, value, _ in reader.reads]
            left = 8 + 208 * number
            scene.box(f"reader {number}", left, 104, 196, f"reader {number + 1}{pinned}", cells=cells, lines=3)
        return scene


def _values(pair: tuple[Read, Read]) -> list[str]:
    return [f"{key} = {value}" for key, value, _ in pair]


def _with(state: Shared, number: int, reader: Reader) -> Shared:
    first, second = state.readers
    return state._replace(readers=(first, reader) if number else (reader, second))


def _each(judge: Callable[[Shared, Reader], str | None]) -> Invariant[Shared]:
    """Return an invariant that holds if it holds for both readers."""

    def invariant(state: Shared) -> str | None:
        for number, reader in enumerate(state.readers, 1):
            reason = judge(state, reader)
            if reason is not None:
                return f"Reader {number} has {reason}."
        return None

    return invariant


def _dirty(state: Shared, reader: Reader) -> str | None:
    for key, value, attempt in reader.reads:
        if attempt in state.undone:
            return f"{key} = {value}, which was undone"
    return None


def _fuzzy(_: Shared, reader: Reader) -> str | None:
    values = [value for key, value, _ in reader.reads if key == "x"]
    return f"x = {values[0]} first, and x = {values[1]} then" if len(set(values)) > 1 else None


def _skewed(_: Shared, reader: Reader) -> str | None:
    if len(reader.reads) < 2:
        return None
    x, y = reader.reads[0].value, reader.reads[1].value
    return None if x + y == TOTAL else f"x = {x} and y = {y}, which together are {x + y}, and not {TOTAL}"


def _backward(_: Shared, reader: Reader) -> str | None:
    if reader.epoch is None or reader.epoch >= reader.after:
        return None
    return f"epoch {reader.epoch}, after a reader that had epoch {reader.after} was done"
