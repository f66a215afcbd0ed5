"""Advice on the query that owns an examined checkpoint: state that will grow, a stuck watermark, rows that wait."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from streamstate.errors import CheckpointError, UnsupportedStateError
from streamstate.operations.checkup.report import CheckupFinding, StoreState

if TYPE_CHECKING:
    from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles

_LOGS = 50
"""The newest epochs whose logs are read."""


def advice_findings(
    checkpoint: CheckpointFiles,
    committed: Sequence[int],
    store: StoreState | None,
    storage_options: Mapping[str, str] | None,
) -> Iterator[CheckupFinding]:
    """Advise on a query, from its captured epochs or, without any, from its checkpoint alone."""
    if store is not None and store.name is not None and store.newest is not None:
        yield from _from_store(store.path, store.name, storage_options)
    elif committed:
        yield from _from_checkpoint(checkpoint, committed)


def _from_store(path: str, name: str, storage_options: Mapping[str, str] | None) -> Iterator[CheckupFinding]:
    from streamstate.state_inspect import open_store
    from streamstate.state_inspect.advice.advise import quick_advice

    query = open_store(path, storage_options=storage_options)[name].recorded
    for advice in quick_advice(query):
        yield CheckupFinding("note", f"{advice.text} {advice.evidence}")


def _from_checkpoint(checkpoint: CheckpointFiles, committed: Sequence[int]) -> Iterator[CheckupFinding]:
    """Yield advice on the watermark, and on state that can never shrink; its growth shows only in captured epochs."""
    from streamstate.state_inspect.advice.epoch_progress import progress_in_checkpoint
    from streamstate.state_inspect.advice.kept_states import kept_by_checkpoint
    from streamstate.state_inspect.advice.stall import stall_of
    from streamstate.state_inspect.advice.stall_advice import (
        MIN,
        Watermarks,
        deserves_advice,
        pinned_policy,
        stall_advice,
    )

    found = stall_of(progress_in_checkpoint(checkpoint, committed[-_LOGS:]))
    watermarks = Watermarks(None, pinned_policy(checkpoint) or MIN)
    if found is not None and found.newest.watermark is not None and deserves_advice(found, watermarks, ()):
        advice = stall_advice(found, watermarks, ())
        yield CheckupFinding("note", f"{advice.text} {advice.evidence}")
    try:
        kept = kept_by_checkpoint(checkpoint, committed[-1])
    except (CheckpointError, UnsupportedStateError):
        return  # the findings on the state tables say why
    for state in kept:
        if not state.by_user_code:
            yield CheckupFinding("note", f"{' and '.join(state.tables)} can never shrink, because {state.why}.")
