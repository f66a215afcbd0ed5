"""The rules for the cause of a change, for cases that would take long to produce with Spark."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streamstate.snapshots.store.changelog import Operator
from streamstate.state_inspect.causes.cause_rules import EpochFacts, KeyEvent, rule_of

FACTS = EpochFacts(5, watermark=1_000, began=50_000, no_input=False, single=True, only_operator=True)
CHANGED = KeyEvent(5, removed=False, added=False, same=False)
REMOVED = KeyEvent(5, removed=True, added=False, same=False)
ADDED = KeyEvent(5, removed=False, added=True, same=False)
QUIET = replace(FACTS, no_input=True)


def cause_of(operator: str, event: KeyEvent, facts: EpochFacts = FACTS, mode: str = "", *, timers: bool = False) -> str:
    """The cause of an event under an operator's rule."""
    return rule_of(Operator(operator, mode), timers=timers)(event, facts)


@pytest.mark.parametrize("operator", [None, Operator("somethingNew"), Operator("flatMapGroupsWithState")])
def test_an_unknown_operator_has_unknown_causes(operator: Operator | None) -> None:
    """No rule applies to it."""
    for event in (ADDED, CHANGED, REMOVED):
        assert rule_of(operator)(event, FACTS) == "unknown"


def test_causes_of_sessions() -> None:
    """The session's end decides; a watermark that may lag behind, or thinned epochs, leave the cause unknown."""
    passed, open_still = replace(REMOVED, ends=1_000), replace(REMOVED, ends=1_001)
    assert cause_of("sessionWindowStateStoreSaveExec", passed) == "watermark"
    assert cause_of("sessionWindowStateStoreSaveExec", open_still) == "input"
    for less in (replace(FACTS, only_operator=False), replace(FACTS, single=False)):
        assert cause_of("sessionWindowStateStoreSaveExec", passed, less) == "unknown"
        assert cause_of("sessionWindowStateStoreSaveExec", open_still, less) == "input"
    assert cause_of("sessionWindowStateStoreSaveExec", passed, replace(FACTS, watermark=None)) == "unknown"


def test_a_global_row_rewritten_by_every_batch() -> None:
    """Every batch writes it, with or without input."""
    assert cause_of("stateStoreSave", replace(CHANGED, same=True, keyed=False)) == "unknown"
    assert cause_of("stateStoreSave", replace(CHANGED, keyed=False)) == "input"


def test_causes_of_join_rows() -> None:
    """Thinned epochs may hide changes in between."""
    assert cause_of("symmetricHashJoin", replace(CHANGED, same_but_matched=True)) == "input"
    assert cause_of("symmetricHashJoin", CHANGED) == "watermark"
    assert cause_of("symmetricHashJoin", replace(CHANGED, positional=True)) == "unknown"
    assert cause_of("symmetricHashJoin", CHANGED, replace(FACTS, single=False)) == "unknown"


def test_a_timeout_that_cannot_have_fired() -> None:
    """No timeout was set, or it is in the future in each kind of time that it can have."""
    written = replace(FACTS, epoch=4, began=40_000)
    for timeout in (None, -1, 50_001):
        assert cause_of("applyInPandasWithState", replace(CHANGED, expired=timeout)) == "input"
    ahead = replace(CHANGED, expired=2_000, written=written)  # before the batch that set it, so it is event time
    assert cause_of("applyInPandasWithState", ahead) == "input"
    assert cause_of("applyInPandasWithState", replace(ahead, written=None)) == "unknown"
    assert cause_of("applyInPandasWithState", replace(ahead, expired=900)) == "unknown"
    assert cause_of("applyInPandasWithState", replace(ahead, expired=900), QUIET) == "timer"
    assert cause_of("applyInPandasWithState", replace(ahead, expired=45_000)) == "unknown"
    assert cause_of("applyInPandasWithState", ahead, replace(FACTS, began=None, watermark=None)) == "unknown"


def test_timers_of_a_processor() -> None:
    """A timer of the key that was due may have fired; it is the only possible cause if nothing was read."""
    for mode, time in (("EventTime", 900), ("ProcessingTime", 49_000)):
        fired = replace(CHANGED, timers=(time,))
        assert cause_of("transformWithStateExec", fired, mode=mode) == "unknown"
        assert cause_of("transformWithStateExec", fired, QUIET, mode=mode) == "timer"
        assert cause_of("transformWithStateExec", replace(CHANGED, timers=(60_000,)), mode=mode) == "input"
        assert cause_of("transformWithStateExec", replace(CHANGED, timers=None), mode=mode) == "unknown"
        assert cause_of("transformWithStateExec", CHANGED, replace(FACTS, single=False), mode=mode) == "unknown"
    assert cause_of("transformWithStateExec", CHANGED, mode="NoTime") == "input"


def test_the_initial_state_of_a_processor() -> None:
    """The first batch writes it in addition to what its input does."""
    first = replace(FACTS, epoch=0)
    assert cause_of("transformWithStateExec", replace(ADDED, epoch=0), first, "NoTime") == "unknown"


def test_causes_of_ttl() -> None:
    """An expired value is removed by its TTL; if it may not have expired, all other causes have to be excluded."""
    mode, outlived, may_be, ahead = "ProcessingTime", 49_999, 50_000, 50_001
    gone = replace(REMOVED, expired=outlived)
    assert cause_of("transformWithStateExec", gone, mode=mode) == "ttl"
    assert cause_of("transformWithStateExec", replace(gone, expired=may_be), mode=mode) == "unknown"
    assert cause_of("transformWithStateExec", replace(gone, expired=may_be), QUIET, mode=mode) == "ttl"
    assert cause_of("transformWithStateExec", replace(gone, expired=may_be, timers=(1,)), QUIET, mode=mode) == "unknown"
    assert cause_of("transformWithStateExec", replace(gone, expired=ahead), mode=mode) == "input"
    assert cause_of("transformWithStateExec", replace(gone, positional=True), mode=mode) == "unknown"
    assert cause_of("transformWithStateExec", replace(gone, positional=True, expired=ahead), mode=mode) == "unknown"
    assert cause_of("transformWithStateExec", gone, replace(FACTS, began=None), mode=mode) == "unknown"
    rewritten = replace(CHANGED, expired=outlived)
    assert cause_of("transformWithStateExec", rewritten, mode=mode) == "input"
    assert cause_of("transformWithStateExec", replace(rewritten, timers=(1,)), QUIET, mode=mode) == "timer"


def test_causes_of_registered_timers() -> None:
    """A due timer is removed when it fires; before that, only user code deletes it."""
    for mode, come, ahead in (("EventTime", 999, 1_001), ("ProcessingTime", 49_999, 50_001)):
        own = replace(REMOVED, expired=come, timers=(come,))
        assert cause_of("transformWithStateExec", own, mode=mode, timers=True) == "timer"
        deleted = replace(REMOVED, expired=ahead, timers=(ahead,))
        assert cause_of("transformWithStateExec", deleted, mode=mode, timers=True) == "input"
