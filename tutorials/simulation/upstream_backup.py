"""Recovery from upstream: senders keep what they sent until the receiver's state is stored; receivers skip repeats.

A merge of two sources feeds a counter. Each of them stores its state now and then, by itself, and may crash by itself.
After the protocols of Hwang et al. 2005 (upstream backup), SEEP (Castro Fernandez et al. 2013: output buffers belong to
the stored state, and records have numbers by which repeats are skipped) and StreamScope (Lin et al. 2016: what is not
deterministic is made so, or logged).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import ClassVar, NamedTuple, TypeAlias, TypeVar

from streamstate.tutorials.simulation.protocol import Action, Invariant, Protocol
from streamstate.tutorials.simulation.scene import Scene, on_arrow

Numbered: TypeAlias = tuple[int, str]
"""A record with its number among those that the merge has sent."""
_T = TypeVar("_T")


class Merge(NamedTuple):
    """The state of the merge.

    Args:
        taken: how many records of each source it has taken.
        merged: the records, in the order in which it took them.
        sent: the number of the newest record that it sent.
        buffer: what it sent, and the counter's stored state may lack.
    """

    taken: tuple[int, int] = (0, 0)
    merged: tuple[str, ...] = ()
    sent: int = 0
    buffer: tuple[Numbered, ...] = ()


class Count(NamedTuple):
    """The state of the counter: the records that it counts, and the number of the newest one."""

    counted: tuple[str, ...] = ()
    newest: int = 0


class Pair(NamedTuple):
    """A state of the simulation.

    Args:
        read: how many records each source has sent.
        to_merge: what is on the way to the merge, from each source.
        to_counter: what is on the way to the counter.
        merge: the merge's memory.
        counter: the counter's memory.
        stored_merge: the merge's stored state.
        stored_counter: the counter's stored state.
        log: from which source each record came, as far as that is logged.
        crashes: how often a task may still crash.
    """

    read: tuple[int, int]
    to_merge: tuple[tuple[str, ...], tuple[str, ...]]
    to_counter: tuple[Numbered, ...]
    merge: Merge
    counter: Count
    stored_merge: Merge
    stored_counter: Count
    log: tuple[int, ...]
    crashes: int


class UpstreamBackup(Protocol[Pair]):
    """Two sources whose input can be read again, a merge that takes their records by time, and a counter.

    Args:
        records: how many records each source has.
        crashes: how often a task may crash.

    Example:
        >>> from streamstate.tutorials.simulation import run
        >>> run(UpstreamBackup(crashes=2), seed=1)
        Trace of recovery from upstream: 17 actions; all invariants hold
    """

    name: ClassVar[str] = "recovery from upstream"

    def __init__(self, records: int = 2, *, crashes: int = 1) -> None:
        self.inputs = tuple(tuple(f"{source}{number}" for number in range(1, records + 1)) for source in "ab")
        self.crashes = crashes

    # The rules, which mutants and learners override.

    def may_take(self, state: Pair, source: int) -> bool:
        """Check that the merge may take a source's next record: a1, b1, a2, b2, …, whichever arrives first."""
        a, b = state.merge.taken
        return (a == b) is (source == 0)

    def is_repeat(self, counter: Count, number: int) -> bool:
        """Check that the counter has a record already."""
        return number <= counter.newest

    def trimmed(self, buffer: tuple[Numbered, ...], state: Pair) -> tuple[Numbered, ...]:
        """Return what the merge keeps: all that the counter's stored state lacks."""
        return tuple(each for each in buffer if each[0] > state.stored_counter.newest)

    def stored_part(self, merge: Merge) -> Merge:
        """Return what of the merge's memory is stored."""
        return merge

    def restored(self, state: Pair) -> Merge:
        """Return the memory with which the merge starts again."""
        return state.stored_merge

    def read_again(self, state: Pair, merge: Merge) -> tuple[int, int]:
        """Return the positions from which the sources send again to a merge that was restored."""
        return merge.taken

    # What can happen.

    def start(self) -> Pair:
        """Return the first state: nothing was sent."""
        return Pair((0, 0), ((), ()), (), Merge(), Count(), Merge(), Count(), (), self.crashes)

    def actions(self, state: Pair) -> list[Action]:
        """Return what can happen next."""
        if self.finished(state):
            return []
        found = []
        for source, records in enumerate(self.inputs):
            if state.read[source] < len(records):
                found.append(Action(("send", source), f"Source {'ab'[source]} sends {records[state.read[source]]}"))
            if state.to_merge[source] and self.may_take(state, source):
                record = state.to_merge[source][0]
                found.append(Action(("take", source), f"The merge takes {record}, and sends it on"))
        if state.to_counter:
            number, record = state.to_counter[0]
            does = "skips" if self.is_repeat(state.counter, number) else "counts"
            found.append(Action(("count",), f"The counter {does} {record}, number {number}"))
        if self.stored_part(state.merge) != state.stored_merge:
            found.append(Action(("store", "merge"), "The merge's state is stored", 0.5))
        if state.counter != state.stored_counter:
            found.append(Action(("store", "counter"), "The counter's state is stored", 0.5))
        if state.crashes:
            found.append(Action(("crash", "merge"), "The merge crashes, and starts from its stored state", 0.2))
            found.append(Action(("crash", "counter"), "The counter crashes, and starts from its stored state", 0.2))
        return found

    def act(self, state: Pair, action: Action) -> Pair:
        """Return the state after an action."""
        match action.key:
            case ("send", int(source)):
                return self._sent(state, source)
            case ("take", int(source)):
                return self._taken(state, source)
            case ("count",):
                return self._counted(state)
            case ("store", "merge"):
                return state._replace(stored_merge=self.stored_part(state.merge))
            case ("store", _):
                return self._with_trimmed(state._replace(stored_counter=state.counter))
        return self._crashed(state, str(action.key[1]))

    def _sent(self, state: Pair, source: int) -> Pair:
        record = self.inputs[source][state.read[source]]
        queues = _put(state.to_merge, source, (*state.to_merge[source], record))
        return state._replace(read=_put(state.read, source, state.read[source] + 1), to_merge=queues)

    def _crashed(self, state: Pair, task: str) -> Pair:
        """Restore a task; what was on the way to it is lost, and sent again."""
        state = state._replace(crashes=state.crashes - 1)
        if task == "merge":
            merge = self.restored(state)
            return state._replace(merge=merge, read=self.read_again(state, merge), to_merge=((), ()))
        again = tuple(each for each in state.merge.buffer if each[0] > state.stored_counter.newest)
        return state._replace(counter=state.stored_counter, to_counter=again)

    def _with_trimmed(self, state: Pair) -> Pair:
        return state._replace(merge=state.merge._replace(buffer=self.trimmed(state.merge.buffer, state)))

    def _taken(self, state: Pair, source: int) -> Pair:
        record, *others = state.to_merge[source]
        merge = state.merge
        number = merge.sent + 1
        merge = Merge(
            _put(merge.taken, source, merge.taken[source] + 1),
            (*merge.merged, record),
            number,
            (*merge.buffer, (number, record)),
        )
        log = state.log if len(state.log) >= len(merge.merged) else (*state.log, source)
        state = state._replace(to_merge=_put(state.to_merge, source, tuple(others)), merge=merge, log=log)
        return state._replace(to_counter=(*state.to_counter, (number, record)))

    def _counted(self, state: Pair) -> Pair:
        number, record = state.to_counter[0]
        counter = state.counter
        if not self.is_repeat(counter, number):
            counter = Count((*counter.counted, record), number)
        return self._with_trimmed(state._replace(counter=counter, to_counter=state.to_counter[1:]))

    def finished(self, state: Pair) -> bool:
        """Check that all records were sent, and everything has arrived."""
        all_read = all(read >= len(records) for read, records in zip(state.read, self.inputs, strict=True))
        return all_read and not any(state.to_merge) and not state.to_counter

    # What must hold.

    @property
    def invariants(self) -> Mapping[str, Invariant[Pair]]:
        """What recovery promises."""
        return {
            "a record counts once": self._once,
            "sender and receiver agree": self._agree,
            "nothing is lost": self._all,
        }

    def _once(self, state: Pair) -> str | None:
        twice = sorted(name for name, times in Counter(state.counter.counted).items() if times > 1)
        return f"The counter counts {', '.join(twice)} more than once." if twice else None

    def _agree(self, state: Pair) -> str | None:
        pairs = zip(state.merge.merged, state.counter.counted, strict=False)
        for number, (merged, counted) in enumerate(pairs, 1):
            if merged != counted:
                return f"Number {number} is {merged} for the merge, and {counted} for the counter."
        return None

    def _all(self, state: Pair) -> str | None:
        if not self.finished(state):
            return None
        lost = sorted({name for records in self.inputs for name in records} - set(state.counter.counted))
        return f"At the end, the counter misses {', '.join(lost)}." if lost else None

    # How it looks.

    def scene(self, state: Pair) -> Scene:
        """Return the picture of a state: sources above the merge above the counter, and what is stored beside them."""
        scene = Scene(_WIDTH)
        for source, records in enumerate(self.inputs):
            left = 8 + 128 * source
            cells = [_rest(records, state.read[source])]
            scene.box(f"source {source}", left, 8, 116, f"source {'ab'[source]}", cells=cells)
            start, end = (left + 58, 60), (80 + 96 * source, 108)
            scene.arrow(f"way {source}", start, end)
            _queue(scene, start, end, [(record, record) for record in state.to_merge[source]])
        merge, counter = state.merge, state.counter
        buffer = "keeps " + (", ".join(f"{number}:{record}" for number, record in merge.buffer) or "nothing")
        scene.box("merge", 8, 110, 244, "merge", cells=[_merged(merge.merged), buffer], tone="busy")
        scene.arrow("way on", (130, 188), (130, 238))
        chips = [(f"{number} {record}", f"{number}:{record}") for number, record in state.to_counter]
        _queue(scene, (130, 188), (130, 238), chips)
        scene.box("counter", 8, 240, 244, "counter", cells=[_merged(counter.counted, "counts")], tone="busy")
        stored = state.stored_merge
        kept = "keeps " + (", ".join(f"{number}:{record}" for number, record in stored.buffer) or "nothing")
        scene.box("stored merge", 268, 110, 184, "stored", cells=[_merged(stored.merged), kept])
        scene.box("stored counter", 268, 240, 184, "stored", cells=[_merged(state.stored_counter.counted, "counts")])
        return scene


class LoggedOrder(UpstreamBackup):
    """The merge takes what arrives, and logs the choice before it sends the record on. Restored, it follows the log."""

    name: ClassVar[str] = "recovery from upstream, with a log of choices"

    def may_take(self, state: Pair, source: int) -> bool:
        """Check that the log says this source, or says nothing."""
        position = len(state.merge.merged)
        return position >= len(state.log) or state.log[position] == source


class TakesWhatArrives(UpstreamBackup):
    """The merge is not deterministic."""

    fault = "the merge takes records as they arrive, and does not log their order"

    def may_take(self, state: Pair, source: int) -> bool:
        """Take any record."""
        return True


class CountsRepeats(UpstreamBackup):
    """The counter counts all that comes."""

    fault = "the counter does not skip repeats"

    def is_repeat(self, counter: Count, number: int) -> bool:
        """Nothing is a repeat."""
        return False


class NumbersOn(UpstreamBackup):
    """After a crash the merge goes on with the numbers that it has not used."""

    fault = "after a crash, the merge gives new numbers to what it sends again"

    def restored(self, state: Pair) -> Merge:
        """Return the stored state with the newest number."""
        return state.stored_merge._replace(sent=state.merge.sent)


class TrimsOnReceipt(UpstreamBackup):
    """The merge drops what the counter has received."""

    fault = "the merge drops what was received, though it is not stored there"

    def trimmed(self, buffer: tuple[Numbered, ...], state: Pair) -> tuple[Numbered, ...]:
        """Return what the counter has not received."""
        return tuple(each for each in buffer if each[0] > state.counter.newest)


class BufferNotStored(UpstreamBackup):
    """The merge's buffer is not part of what it stores."""

    fault = "the buffer is not stored with the state"

    def stored_part(self, merge: Merge) -> Merge:
        """Return the merge's state without its buffer."""
        return merge._replace(buffer=())


class ReadsOn(UpstreamBackup):
    """After a crash the sources send what comes next."""

    fault = "after a crash, the input is not read again from the stored position"

    def read_again(self, state: Pair, merge: Merge) -> tuple[int, int]:
        """Return the positions where the sources are."""
        return state.read


UPSTREAM_MUTANTS: tuple[type[UpstreamBackup], ...] = (
    TakesWhatArrives,
    CountsRepeats,
    NumbersOn,
    TrimsOnReceipt,
    BufferNotStored,
    ReadsOn,
)
"""One mistake each."""

_WIDTH = 460


def _put(pair: tuple[_T, _T], place: int, value: _T) -> tuple[_T, _T]:
    return (value, pair[1]) if place == 0 else (pair[0], value)


def _rest(records: tuple[str, ...], read: int) -> str:
    return f"next: {', '.join(records[read:])}" if read < len(records) else "all sent"


def _merged(records: tuple[str, ...], verb: str = "has") -> str:
    return f"{verb} {', '.join(records) or 'nothing'}"


def _queue(scene: Scene, start: tuple[float, float], end: tuple[float, float], chips: list[tuple[str, str]]) -> None:
    """Draw what is on its way, the first one nearest to the end."""
    for place, (name, text) in enumerate(reversed(chips[:3])):
        x, y = on_arrow(start, end, 0.8 - 0.3 * (min(3, len(chips)) - 1 - place))
        scene.chip(f"chip {name}", x + 34 * (min(3, len(chips)) - 1 - place), y, text)
