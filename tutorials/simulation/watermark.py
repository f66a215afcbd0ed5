"""Counts for windows of event time under a watermark: which events count, when a window fires, and what stays.

The watermark is the largest event time so far, minus a delay (as in Spark; Akidau et al. 2015 describe others). Times
are minutes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import ClassVar, NamedTuple, TypeAlias

from streamstate.tutorials.simulation.protocol import Action, Invariant, Protocol
from streamstate.tutorials.simulation.scene import LINE, Scene

Event: TypeAlias = tuple[str, int]
"""A name and an event time."""
Windows: TypeAlias = tuple[tuple[int, int], ...]
"""Starts of windows with counts, ascending."""


class Counted(NamedTuple):
    """A state of the simulation.

    Args:
        waiting: the events that have not arrived, in the order in which they would.
        counted: those that count.
        dropped: those that came too late.
        largest: the largest event time that has arrived; None: nothing has.
        state: the windows in the state, with their counts.
        fired: the windows that were given out, with their counts.
    """

    waiting: tuple[Event, ...]
    counted: tuple[Event, ...] = ()
    dropped: tuple[Event, ...] = ()
    largest: int | None = None
    state: Windows = ()
    fired: Windows = ()


class WindowedCount(Protocol[Counted]):
    """Events arrive one by one; which of the next ones is first is open.

    Args:
        events: their names and event times, in the order in which they would arrive.
        size: minutes of a window.
        delay: minutes that the watermark is behind the largest event time.
        ahead: so many of the next events may arrive next.

    Example:
        >>> from streamstate.tutorials.simulation import replay
        >>> protocol = WindowedCount({"a": 1, "b": 12, "c": 16, "d": 9})
        >>> replay(protocol, [("arrive", name) for name in "abcd"]).states[-1].dropped
        (('d', 9),)
    """

    name: ClassVar[str] = "counts under a watermark"

    def __init__(self, events: Mapping[str, int], *, size: int = 10, delay: int = 5, ahead: int = 1) -> None:
        self.events = tuple(events.items())
        self.size, self.delay, self.ahead = size, delay, ahead

    # The rules, which mutants override.

    def is_late(self, time: int, watermark: int) -> bool:
        """Check that an event's window was closed before it arrived."""
        return self.start_of(time) + self.size <= watermark

    def is_closed(self, start: int, watermark: int) -> bool:
        """Check that no event can change a window any more."""
        return start + self.size <= watermark

    # What can happen.

    def start(self) -> Counted:
        """Return the first state: nothing has arrived."""
        return Counted(self.events)

    def actions(self, state: Counted) -> list[Action]:
        """Return the events that may arrive next."""
        return [
            Action(("arrive", name), f"{name} arrives, of minute {time}") for name, time in state.waiting[: self.ahead]
        ]

    def act(self, state: Counted, action: Action) -> Counted:
        """Return the state after an event."""
        name = action.key[1]
        event = next(event for event in state.waiting if event[0] == name)
        state = state._replace(waiting=tuple(each for each in state.waiting if each != event))
        before = self.watermark(state)
        if before is not None and self.is_late(event[1], before):
            state = state._replace(dropped=tuple(sorted((*state.dropped, event))))
        else:
            counts = Counter(dict(state.state))
            counts[self.start_of(event[1])] += 1
            state = state._replace(counted=tuple(sorted((*state.counted, event))), state=tuple(sorted(counts.items())))
        state = state._replace(largest=max(event[1], state.largest or 0))
        watermark = self.watermark(state)
        assert watermark is not None
        closed = tuple(each for each in state.state if self.is_closed(each[0], watermark))
        stays = tuple(each for each in state.state if each not in closed)
        return state._replace(state=stays, fired=tuple(sorted((*state.fired, *closed))))

    def finished(self, state: Counted) -> bool:
        """Check that all events have arrived; the last windows wait for more."""
        return not state.waiting

    def watermark(self, state: Counted) -> int | None:
        """Return the watermark; None if nothing has arrived."""
        return None if state.largest is None else state.largest - self.delay

    def start_of(self, time: int) -> int:
        """Return the start of the window of an event time."""
        return time // self.size * self.size

    # What must hold.

    @property
    def invariants(self) -> Mapping[str, Invariant[Counted]]:
        """What a window promises."""
        return {
            "a result is final": self._final,
            "nothing lingers": self._left,
            "nothing is forgotten too early": self._kept,
            "only late events are dropped": self._dropped,
        }

    def _final(self, state: Counted) -> str | None:
        twice = [start for start, times in Counter(start for start, _ in state.fired).items() if times > 1]
        return f"The window from {twice[0]} was given out twice." if twice else None

    def _left(self, state: Counted) -> str | None:
        watermark = self.watermark(state)
        old = [start for start, _ in state.state if watermark is not None and start + self.size <= watermark]
        return f"The window from {old[0]} is over, and in the state." if old else None

    def _kept(self, state: Counted) -> str | None:
        watermark = self.watermark(state)
        early = [start for start, _ in state.fired if watermark is not None and start + self.size > watermark]
        return f"The window from {early[0]} was given out, though it is not over." if early else None

    def _dropped(self, state: Counted) -> str | None:
        fired = {start for start, _ in state.fired}
        watermark = self.watermark(state)
        for name, time in state.dropped:
            start = self.start_of(time)
            if watermark is not None and start not in fired and start + self.size > watermark:
                return f"{name} was dropped, and its window from {start} is not over."
        return None

    # How it looks.

    def scene(self, state: Counted) -> Scene:
        """Return the picture of a state: what waits, events on the axis of event time, windows, and the watermark."""
        last = self.start_of(max(time for _, time in self.events)) + self.size
        scale = (_WIDTH - 2 * _MARGIN) / last
        scene = Scene(_WIDTH)
        scene.text("waiting", _MARGIN, 16, "still to arrive:" if state.waiting else "all have arrived")
        for place, (name, time) in enumerate(state.waiting):
            scene.chip(name, 118 + 26 * place, 16, name, tone="faint", words=f"{name} of minute {time} waits.")
        for name, time in (*state.counted, *state.dropped):
            x, dropped = _MARGIN + (time + 0.5) * scale, (name, time) in state.dropped
            words = f"{name} of minute {time} {'is dropped' if dropped else 'counts'}."
            if dropped:
                scene.chip(name, x, 52, name, tone="bad", words=words)
            else:
                scene.chip(name, x, 80, name, tone="good", words=words)
        if state.dropped:
            scene.text("dropped", _WIDTH - 62, 52, "✗ dropped", tone="faint")
        self._windows(scene, state, last, scale)
        watermark = self.watermark(state)
        if watermark is not None:
            x = _MARGIN + max(0, watermark) * scale
            scene.arrow("watermark", (x, 38), (x, 146), tone="mark", words=f"The watermark is minute {watermark}.")
            scene.text("watermark name", min(x + 5, _WIDTH - 96), 158, f"watermark {watermark}", tone="faint")
        scene.height = max(scene.height, 172)
        return scene

    def _windows(self, scene: Scene, state: Counted, last: int, scale: float) -> None:
        counts, fired = dict(state.state), dict(state.fired)
        for start in range(0, last, self.size):
            left, wide = _MARGIN + start * scale, self.size * scale
            scene.text(f"minute {start}", left, 104, str(start), tone="faint")
            if start in counts or start in fired:
                done = start in fired
                text = f"fired: {fired[start]}" if done else f"state: {counts[start]}"
                name, top, high = f"window {start}", 114, LINE
                scene.cell(name, left + 1, top, wide - 2, text, tone="good" if done else "busy")
                scene.height = max(scene.height, top + high)


class LateByOwnTime(WindowedCount):
    """An event is late if its own time is behind the watermark."""

    fault = "an event is dropped if its own time is behind the watermark"

    def is_late(self, time: int, watermark: int) -> bool:
        """Compare the event's time."""
        return time < watermark


class Lagging(WindowedCount):
    """A window that ends exactly at the watermark stays."""

    fault = "a window that ends at the watermark stays in the state"

    def is_closed(self, start: int, watermark: int) -> bool:
        """Compare with the edge left out."""
        return start + self.size < watermark


class Eager(WindowedCount):
    """A window is given out once the watermark has reached its start."""

    fault = "a window is given out at its start"

    def is_closed(self, start: int, watermark: int) -> bool:
        """Compare the start."""
        return start <= watermark


class CountsLate(WindowedCount):
    """Nothing is dropped."""

    fault = "late events open their window again"

    def is_late(self, time: int, watermark: int) -> bool:
        """Nothing is late."""
        return False


WATERMARK_MUTANTS: tuple[type[WindowedCount], ...] = (LateByOwnTime, Lagging, Eager, CountsLate)
"""One mistake each."""

_WIDTH, _MARGIN = 440, 10
