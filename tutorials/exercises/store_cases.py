"""Cases of the exercises about the files of a store: files that runs left, learners' purges, and loads after a loss."""

from __future__ import annotations

from collections.abc import Mapping, Sized
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

from streamstate.tutorials.exercises.judged_runs import NotWrittenError, run_judged
from streamstate.tutorials.simulation import run
from streamstate.tutorials.simulation.log_structured import LogStructured, Stored
from streamstate.tutorials.simulation.protocol import Invariant, Key
from streamstate.tutorials.simulation.store_files import Entries, File, Files, held, needed, newest_snapshot

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

    from streamstate.tutorials.exercises.attempts import Function
    from streamstate.tutorials.exercises.sampling import Case

Held: TypeAlias = dict[str, "int | None"]
"""What a version holds, or what it changed; None: the key was deleted."""
Changes: TypeAlias = tuple[Held, ...]
"""The changes of versions 1, 2, 3, …"""
Loaded: TypeAlias = "dict[int, Held | None]"
"""What a load of each retained version finds; None: it fails."""


@cache
def files_seen() -> tuple[tuple[Files, str, int], ...]:
    """Return files that random runs have in the remote store, a key, and a retained version; few files first."""
    found: dict[tuple[Files, str, int], None] = {}
    for seed in range(60):
        store = LogStructured(4)
        for state in run(store, seed).states:
            found |= {(state.remote, key, version): None for key in "xy" for version in store.retained(state)}
    cases = (case for case in found if needed(case[0], case[2]))
    return tuple(sorted(cases, key=lambda case: (len(case[0]), len(repr(case)), case[1:])))


def file_cases() -> SearchStrategy[Case]:
    """Draw files, a key and a version."""
    from hypothesis import strategies as st

    return st.sampled_from(files_seen())


class LearnedPurge(LogStructured):
    """A store in which a purge takes what a learner's rule allows.

    Args:
        retain: how many versions must stay readable.
        rule: called with a file, all files in the remote store, and the retained versions.
    """

    def __init__(self, retain: int, rule: Function) -> None:
        super().__init__(retain + 2, keys="x", retain=retain)
        self.rule = cache(rule)

    def may_purge(self, file: File, state: Stored) -> bool:
        """Ask the rule."""
        retained = tuple(self.retained(state))
        allowed = self.rule(file, state.remote, retained) if retained else False
        if allowed in (None, ...):
            raise NotWrittenError
        return bool(allowed)

    @property
    def invariants(self) -> Mapping[str, Invariant[Stored]]:
        """What the store promises, and that it does not keep files for ever."""
        return {**super().invariants, "what nobody needs may go": self._left_over}

    def _left_over(self, state: Stored) -> str | None:
        oldest = self.retained(state).start
        base = newest_snapshot(state.remote, oldest)
        for file in state.remote:
            if base and file.version < base.version and not self.may_purge(file, state):
                return f"A purge would leave {file.name}. Version {oldest} is loaded from {base.name}."
        return None


def run_purges(function: Function, case: Case) -> Any:
    """Run a store with a learner's rule."""
    retain, seed = case
    return run_judged(LearnedPurge(retain, function), seed)


def purge_cases() -> SearchStrategy[Case]:
    """Draw how many versions are retained, and the number of a run."""
    from hypothesis import strategies as st

    return st.tuples(st.integers(1, 3), st.integers(0, 999))


def change_cases() -> SearchStrategy[Case]:
    """Draw the changes of some versions, the interval between snapshots, and how many versions are retained."""
    from hypothesis import strategies as st

    version = st.dictionaries(st.sampled_from("xy"), st.booleans(), min_size=1)
    return st.tuples(st.lists(version, min_size=1, max_size=4).map(_numbered), st.integers(1, 3), st.integers(1, 3))


def _numbered(versions: list[dict[str, bool]]) -> Changes:
    """Return changes in which a put has its version as value; what is not there is put rather than deleted."""
    changes: list[Held] = []
    for number, version in enumerate(versions, start=1):
        there = folded(tuple(changes), number - 1)
        changes.append({key: number if put or key not in there else None for key, put in sorted(version.items())})
    return tuple(changes)


def newest(changes: Sized, retain: int) -> range:
    """Return the versions that must stay readable."""
    return range(max(1, len(changes) - retain + 1), len(changes) + 1)


def folded(changes: Changes, version: int) -> Held:
    """Return what a version holds."""
    table: Held = {}
    for changed in changes[:version]:
        table |= changed
    return dict(held(table))


def loaded(kind: type[LogStructured], changes: Changes, every: int, retain: int) -> Loaded:
    """Return what loads of the retained versions find, after the changes and the loss of the local disk.

    Args:
        kind: the store.
        changes: the changes of each version.
        every: a snapshot is written after each ``every``-th version, and uploaded unless the version is the last.
        retain: how many versions must stay readable.
    """
    frozen = tuple(tuple(changed.items()) for changed in changes)
    return {version: None if table is None else dict(table) for version, table in _loads(kind, frozen, every, retain)}


@cache
def _loads(
    kind: type[LogStructured], changes: tuple[Entries, ...], every: int, retain: int
) -> tuple[tuple[int, Entries | None], ...]:
    store = kind(len(changes), retain=retain)
    state = store.start()
    for step in _steps(changes, every):
        enabled = (action for action in store.actions(state) if action.key[: len(step)] == step)
        if (action := next(enabled, None)) is not None:
            state = store.act(state, action)
    return tuple((version, store.load(state.remote, version)) for version in newest(changes, retain))


def _steps(changes: tuple[Entries, ...], every: int) -> list[Key]:
    """Return what happens, as the beginnings of actions' keys; what is not enabled is left out."""
    steps: list[Key] = []
    for version, changed in enumerate(changes, start=1):
        steps += [("delete" if value is None else "put", key) for key, value in changed]
        steps += [("flush",), ("acknowledge",), ("upload", "changelog"), ("acknowledge",)]
        if version % every == 0:
            steps += [("snapshot",), ("purge",)]
        if version < len(changes):
            steps += [("upload", "snapshot"), ("purge",)]
    return steps
