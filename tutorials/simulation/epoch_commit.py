"""How an epoch happens once: its plan, state, results and commit are written, and any of these may be the last write.

Spark's Structured Streaming writes these four things for each epoch (Armbrust et al. 2018). A group of records becomes
one transaction: what is not committed happens again, in the same way, or never did.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

from streamstate.tutorials.simulation.protocol import Action, Invariant, Protocol
from streamstate.tutorials.simulation.scene import Scene, Tone

Step: TypeAlias = Literal["plan", "state", "results", "commit"]
SinkKind: TypeAlias = Literal["replaces", "skips", "appends"]
STEPS: tuple[Step, ...] = ("plan", "state", "results", "commit")
"""What is written for each epoch, in the order in which Spark writes it."""


class Written(NamedTuple):
    """What the disk and the sink have of one epoch.

    Args:
        plan: which records it has: the number of the first one, and that after the last one; None: not written.
        state: the records that the state counts after it; None: not written.
        results: the records whose results the sink has; None: not written.
        committed: whether it is committed.
    """

    plan: tuple[int, int] | None = None
    state: tuple[str, ...] | None = None
    results: tuple[str, ...] | None = None
    committed: bool = False


class Engine(NamedTuple):
    """What the engine has in memory.

    Args:
        epoch: the epoch that runs, or that runs next.
        state: the records that its state counts.
        first: the number of the first record after the newest committed epoch.
        end: the number of the record after the last one of the epoch that runs; None: none runs.
        done: how many of the four things are written.
    """

    epoch: int
    state: tuple[str, ...]
    first: int
    end: int | None = None
    done: int = 0


class Process(NamedTuple):
    """A state of the simulation.

    Args:
        arrived: how many records are there to be read.
        epochs: what is written, by epoch; the first one is epoch 0.
        engine: the engine's memory; None: it is down.
        changed: the epochs whose results were replaced by other ones after somebody could read them.
        crashes: how often it may still crash.
    """

    arrived: int
    epochs: tuple[Written, ...]
    engine: Engine | None
    changed: tuple[int, ...]
    crashes: int


class EpochCommit(Protocol[Process]):
    """One engine that counts records, epoch by epoch, and may crash between any two writes.

    Args:
        records: how many records arrive.
        order: the order in which an epoch's parts are written.
        sink: what the sink does with the results of an epoch that it has: it replaces them, skips the new ones, or
            appends them, because it knows no epochs.
        crashes: how often it may crash.

    Example:
        >>> from streamstate.tutorials.simulation import explore
        >>> explore(EpochCommit(records=2)).shortest("a result is there once") is None
        True
        >>> explore(EpochCommit(records=2, sink="appends")).shortest("a result is there once").actions[-1].label
        'The results of epoch 0 are written'
    """

    name = "an epoch's commit"

    def __init__(
        self, records: int = 3, *, order: Sequence[Step] = STEPS, sink: SinkKind = "replaces", crashes: int = 1
    ) -> None:
        if sorted(order) != sorted(STEPS):
            raise ValueError(f"Invalid order {tuple(order)}: expected each of {', '.join(STEPS)} once.")
        self.records = tuple(f"a{number}" for number in range(1, records + 1))
        self.order, self.sink, self.crashes = tuple(order), sink, crashes

    # The rules, which mutants and learners override.

    def recover(self, epochs: tuple[Written, ...]) -> Engine:
        """Return what the engine begins with after a crash: the newest committed epoch's state and position."""
        committed = max((number for number, epoch in enumerate(epochs) if epoch.committed), default=-1)
        if committed < 0:
            return Engine(0, (), 0)
        newest = epochs[committed]
        return Engine(committed + 1, newest.state or (), newest.plan[1] if newest.plan else 0)

    def range_of(self, epoch: Written, first: int, arrived: int) -> tuple[int, int]:
        """Return the records of an epoch: those of its plan, if there is one, or all that have arrived."""
        return epoch.plan or (first, arrived)

    # What can happen.

    def start(self) -> Process:
        """Return the first state: nothing has arrived."""
        return Process(0, (), Engine(0, (), 0), (), self.crashes)

    def actions(self, state: Process) -> list[Action]:
        """Return what can happen next."""
        found = []
        if state.arrived < len(self.records):
            found.append(Action(("arrive",), f"{self.records[state.arrived]} arrives"))
        engine = state.engine
        if engine is None:
            return [*found, Action(("recover",), "The engine starts again")]
        if engine.end is None:
            first, end = self.range_of(_of(state.epochs, engine.epoch), engine.first, state.arrived)
            if end > first:
                records = ", ".join(self.records[first:end])
                found.append(Action(("begin",), f"Epoch {engine.epoch} begins with {records}"))
        else:
            step = self.order[engine.done]
            found.append(Action(("write", step), f"The {step} of epoch {engine.epoch} {_verb(step)} written"))
        if state.crashes and not self.finished(state):
            found.append(Action(("crash",), "The engine crashes", 0.3))
        return found

    def act(self, state: Process, action: Action) -> Process:
        """Return the state after an action."""
        kind = action.key[0]
        if kind == "arrive":
            return state._replace(arrived=state.arrived + 1)
        if kind == "crash":
            return state._replace(engine=None, crashes=state.crashes - 1)
        if kind == "recover" or state.engine is None:
            return state._replace(engine=self.recover(state.epochs))
        if kind == "begin":
            return state._replace(engine=self._begun(state, state.engine))
        return self._written(state, state.engine)

    def _begun(self, state: Process, engine: Engine) -> Engine:
        first, end = self.range_of(_of(state.epochs, engine.epoch), engine.first, state.arrived)
        return engine._replace(first=first, end=end, state=(*engine.state, *self.records[first:end]))

    def _written(self, state: Process, engine: Engine) -> Process:
        before, changed, end = _of(state.epochs, engine.epoch), state.changed, engine.end or 0
        step = self.order[engine.done]
        if step == "plan":
            now = before._replace(plan=(engine.first, end))
        elif step == "state":
            now = before._replace(state=engine.state)
        elif step == "commit":
            now = before._replace(committed=True)
        else:
            now = before._replace(results=self._shown(before.results, self.records[engine.first : end]))
            if before.results is not None and now.results != before.results:
                changed = (*changed, engine.epoch)
        epochs = _with(state.epochs, engine.epoch, now)
        engine = engine._replace(done=engine.done + 1)
        if engine.done == len(self.order):
            engine = Engine(engine.epoch + 1, engine.state, end)
        return state._replace(epochs=epochs, engine=engine, changed=changed)

    def _shown(self, before: tuple[str, ...] | None, now: tuple[str, ...]) -> tuple[str, ...]:
        """Return the results of an epoch that the sink has after it gets some."""
        if before is None or self.sink == "replaces":
            return now
        return before if self.sink == "skips" else (*before, *now)

    def finished(self, state: Process) -> bool:
        """Check that all records are in committed epochs."""
        engine = state.engine
        return engine is not None and engine.end is None and engine.first >= len(self.records) <= state.arrived

    # What must hold.

    @property
    def invariants(self) -> Mapping[str, Invariant[Process]]:
        """What an epoch promises."""
        return {
            "a commit is complete": self._complete,
            "the state is that of the input": self._state,
            "a result is there once": self._once,
            "results do not change": self._unchanged,
            "nothing is lost": self._all,
        }

    def _complete(self, state: Process) -> str | None:
        for number, epoch in enumerate(state.epochs):
            missing = [name for name, part in zip(STEPS, epoch, strict=True) if part is None]
            if epoch.committed and missing:
                return f"Epoch {number} is committed without its {missing[0]}."
        return None

    def _state(self, state: Process) -> str | None:
        for number, epoch in enumerate(state.epochs):
            if epoch.committed and epoch.plan and epoch.state is not None:
                expected = self.records[: epoch.plan[1]]
                if epoch.state != expected:
                    return f"The state after epoch {number} counts {_list(epoch.state)}, and not {_list(expected)}."
        return None

    def _once(self, state: Process) -> str | None:
        twice = [name for name, times in Counter(_results(state)).items() if times > 1]
        return f"The sink has the result of {_list(sorted(twice))} more than once." if twice else None

    def _unchanged(self, state: Process) -> str | None:
        return f"The sink had other results of epoch {state.changed[0]} before." if state.changed else None

    def _all(self, state: Process) -> str | None:
        lost = set(self.records) - set(_results(state))
        return f"The sink never gets {_list(sorted(lost))}." if lost and self.finished(state) else None

    # How it looks.

    def scene(self, state: Process) -> Scene:
        """Return the picture of a state: the input, the engine, and a line of writes for each epoch."""
        scene = Scene(_WIDTH)
        scene.text("input", 8, 18, "input")
        texts: list[tuple[str, Tone]] = [
            (name, "" if number < state.arrived else "faint") for number, name in enumerate(self.records)
        ]
        scene.cells("record", 60, 8, _WIDTH - 70, texts)
        engine = state.engine
        title, cells = _told(self, engine)
        scene.box("engine", 8, 38, _WIDTH - 16, title, cells=cells, tone="busy" if engine else "bad", lines=2)
        for column, step in enumerate(self.order):
            scene.text(f"head {step}", 76 + column * _COLUMN, 132, step, tone="faint")
        for number in range(len(self.records)):
            if number < len(state.epochs):
                self._draw(scene, number, state.epochs[number])
        scene.height = max(scene.height, 142 + 26 * len(self.records))
        return scene

    def _draw(self, scene: Scene, number: int, epoch: Written) -> None:
        top = 142 + 26 * number
        scene.text(f"epoch {number}", 8, top + 10, f"epoch {number}")
        parts = {
            "plan": _list(self.records[slice(*epoch.plan)]) if epoch.plan else None,
            "state": f"counts {len(epoch.state)}" if epoch.state is not None else None,
            "results": _list(epoch.results) if epoch.results is not None else None,
            "commit": "✓" if epoch.committed else None,
        }
        for column, step in enumerate(self.order):
            text = parts[step]
            if text is not None:
                tone: Tone = "good" if epoch.committed else "mark"
                scene.cell(f"{step} {number}", 76 + column * _COLUMN, top, _COLUMN - 8, text, tone=tone)

    def tell(self, before: Process, action: Action, after: Process) -> str:
        """Return what an action did."""
        if action.key == ("recover",) and after.engine is not None:
            engine = after.engine
            planned = " It has a plan." if _of(after.epochs, engine.epoch).plan else ""
            return f"{action.label}: epoch {engine.epoch} is next, and the state counts {_list(engine.state)}.{planned}"
        return f"{action.label}."


class TakesWhatHasArrived(EpochCommit):
    """A plan that is on the disk is not read."""

    fault = "an epoch that runs again takes all records that have arrived"

    def range_of(self, epoch: Written, first: int, arrived: int) -> tuple[int, int]:
        """Return all records that have arrived."""
        return first, arrived


class TrustsNewestState(EpochCommit):
    """The newest state on the disk is taken, whether its epoch is committed or not."""

    fault = "the newest state is taken, though its epoch may not be committed"

    def recover(self, epochs: tuple[Written, ...]) -> Engine:
        """Return the position of the newest commit and the state of the newest epoch that has one."""
        engine = super().recover(epochs)
        states = [epoch.state for epoch in epochs if epoch.state is not None]
        return engine._replace(state=states[-1] if states else ())


class CommitsFirst(EpochCommit):
    """The commit is written before the results."""

    fault = "the commit is written before the results"

    def __init__(self, records: int = 3, *, sink: SinkKind = "replaces", crashes: int = 1) -> None:
        super().__init__(records, order=("plan", "state", "commit", "results"), sink=sink, crashes=crashes)


class PlansLast(EpochCommit):
    """The plan is written after the results."""

    fault = "the plan is written after the results"

    def __init__(self, records: int = 3, *, sink: SinkKind = "replaces", crashes: int = 1) -> None:
        super().__init__(records, order=("state", "results", "plan", "commit"), sink=sink, crashes=crashes)


class SkipsAhead(EpochCommit):
    """An epoch whose plan is on the disk counts as done."""

    fault = "an epoch with a plan is not run again"

    def recover(self, epochs: tuple[Written, ...]) -> Engine:
        """Return the position after the newest plan."""
        engine = super().recover(epochs)
        planned = _of(epochs, engine.epoch).plan
        return engine if planned is None else Engine(engine.epoch + 1, engine.state, planned[1])


class AppendingSink(EpochCommit):
    """The sink knows no epochs."""

    fault = "the sink appends the results of an epoch that it has"

    def __init__(self, records: int = 3, *, crashes: int = 1) -> None:
        super().__init__(records, sink="appends", crashes=crashes)


EPOCH_MUTANTS: tuple[type[EpochCommit], ...] = (
    TakesWhatHasArrived,
    TrustsNewestState,
    CommitsFirst,
    PlansLast,
    SkipsAhead,
    AppendingSink,
)
"""One mistake each."""

_WIDTH, _COLUMN = 420, 84


def _of(epochs: tuple[Written, ...], number: int) -> Written:
    return epochs[number] if number < len(epochs) else Written()


def _with(epochs: tuple[Written, ...], number: int, epoch: Written) -> tuple[Written, ...]:
    padded = (*epochs, *[Written()] * (number + 1 - len(epochs)))
    return (*padded[:number], epoch, *padded[number + 1 :])


def _results(state: Process) -> list[str]:
    return [name for epoch in state.epochs for name in epoch.results or ()]


def _told(protocol: EpochCommit, engine: Engine | None) -> tuple[str, list[str]]:
    if engine is None:
        return "engine: down", ["its memory is gone"]
    counts = f"its state counts {_list(engine.state)}"
    if engine.end is None:
        return "engine: waits", [counts]
    records = _list(protocol.records[engine.first : engine.end])
    return f"engine: epoch {engine.epoch} with {records}", [counts, f"writes the {protocol.order[engine.done]} next"]


def _list(names: Sequence[str]) -> str:
    return ", ".join(names) or "nothing"


def _verb(step: str) -> str:
    return "are" if step == "results" else "is"
