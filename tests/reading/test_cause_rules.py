"""What can be known of a change, rule by rule, where a run of Spark would take long to bring it about."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streamstate.snapshots.change_log import Operator
from streamstate.state_inspect.differences.cause_rules import Event, Moment, rule_of

AT = Moment(5, watermark=1_000, began=50_000, no_input=False, single=True, only_operator=True)
CHANGED = Event(5, removed=False, added=False, same=False)
REMOVED = Event(5, removed=True, added=False, same=False)
ADDED = Event(5, removed=False, added=True, same=False)
QUIET = replace(AT, no_input=True)


def of(operator: str, event: Event, moment: Moment = AT, mode: str = "", *, timers: bool = False) -> str:
    """The cause by an operator's rule."""
    return rule_of(Operator(operator, mode), timers=timers)(event, moment)


@pytest.mark.parametrize("operator", [None, Operator("somethingNew"), Operator("flatMapGroupsWithState")])
def test_an_operator_that_is_not_known(operator: Operator | None) -> None:
    """Nothing can be said of it."""
    for event in (ADDED, CHANGED, REMOVED):
        assert rule_of(operator)(event, AT) == "unknown"


def test_sessions() -> None:
    """The end decides; a watermark that may lag behind the query's, or epochs that were thinned, leave it open."""
    passed, open_still = replace(REMOVED, ends=1_000), replace(REMOVED, ends=1_001)
    assert of("sessionWindowStateStoreSaveExec", passed) == "watermark"
    assert of("sessionWindowStateStoreSaveExec", open_still) == "input"
    for less in (replace(AT, only_operator=False), replace(AT, single=False)):
        assert of("sessionWindowStateStoreSaveExec", passed, less) == "unknown"
        assert of("sessionWindowStateStoreSaveExec", open_still, less) == "input"
    assert of("sessionWindowStateStoreSaveExec", passed, replace(AT, watermark=None)) == "unknown"


def test_a_row_without_a_key_that_is_written_again() -> None:
    """Every batch writes it, input or not."""
    assert of("stateStoreSave", replace(CHANGED, same=True, keyed=False)) == "unknown"
    assert of("stateStoreSave", replace(CHANGED, keyed=False)) == "input"


def test_rows_of_a_join() -> None:
    """Thinned epochs may hide what came in between."""
    assert of("symmetricHashJoin", replace(CHANGED, same_but_matched=True)) == "input"
    assert of("symmetricHashJoin", CHANGED) == "watermark"
    assert of("symmetricHashJoin", replace(CHANGED, positional=True)) == "unknown"
    assert of("symmetricHashJoin", CHANGED, replace(AT, single=False)) == "unknown"


def test_a_timeout_that_cannot_have_come() -> None:
    """None was set, or it lies ahead in both kinds of time, or in the one that it must be of."""
    written = replace(AT, epoch=4, began=40_000)
    for timeout in (None, -1, 50_001):
        assert of("applyInPandasWithState", replace(CHANGED, expired=timeout)) == "input"
    ahead = replace(CHANGED, expired=2_000, written=written)  # before the batch that set it: it is event time
    assert of("applyInPandasWithState", ahead) == "input"
    assert of("applyInPandasWithState", replace(ahead, written=None)) == "unknown"
    assert of("applyInPandasWithState", replace(ahead, expired=900)) == "unknown"
    assert of("applyInPandasWithState", replace(ahead, expired=900), QUIET) == "timer"
    assert of("applyInPandasWithState", replace(ahead, expired=45_000)) == "unknown"
    assert of("applyInPandasWithState", ahead, replace(AT, began=None, watermark=None)) == "unknown"


def test_timers_of_a_processor() -> None:
    """A timer of the key whose time had come may have run; alone it can only where nothing was read."""
    for mode, time in (("EventTime", 900), ("ProcessingTime", 49_000)):
        fired = replace(CHANGED, timers=(time,))
        assert of("transformWithStateExec", fired, mode=mode) == "unknown"
        assert of("transformWithStateExec", fired, QUIET, mode=mode) == "timer"
        assert of("transformWithStateExec", replace(CHANGED, timers=(60_000,)), mode=mode) == "input"
        assert of("transformWithStateExec", replace(CHANGED, timers=None), mode=mode) == "unknown"
        assert of("transformWithStateExec", CHANGED, replace(AT, single=False), mode=mode) == "unknown"
    assert of("transformWithStateExec", CHANGED, mode="NoTime") == "input"


def test_the_initial_state_of_a_processor() -> None:
    """The first batch writes it beside what its input does."""
    first = replace(AT, epoch=0)
    assert of("transformWithStateExec", replace(ADDED, epoch=0), first, "NoTime") == "unknown"


def test_times_to_live() -> None:
    """What has outlived its time goes by itself; where it may not have, all else is to be ruled out."""
    mode, outlived, may_be, ahead = "ProcessingTime", 49_999, 50_000, 50_001
    gone = replace(REMOVED, expired=outlived)
    assert of("transformWithStateExec", gone, mode=mode) == "ttl"
    assert of("transformWithStateExec", replace(gone, expired=may_be), mode=mode) == "unknown"
    assert of("transformWithStateExec", replace(gone, expired=may_be), QUIET, mode=mode) == "ttl"
    assert of("transformWithStateExec", replace(gone, expired=may_be, timers=(1,)), QUIET, mode=mode) == "unknown"
    assert of("transformWithStateExec", replace(gone, expired=ahead), mode=mode) == "input"
    assert of("transformWithStateExec", replace(gone, positional=True), mode=mode) == "unknown"
    assert of("transformWithStateExec", replace(gone, positional=True, expired=ahead), mode=mode) == "unknown"
    assert of("transformWithStateExec", gone, replace(AT, began=None), mode=mode) == "unknown"
    anew = replace(CHANGED, expired=outlived)
    assert of("transformWithStateExec", anew, mode=mode) == "input"
    assert of("transformWithStateExec", replace(anew, timers=(1,)), QUIET, mode=mode) == "timer"


def test_registered_timers() -> None:
    """One whose time has come goes; before that only user code takes it away."""
    for mode, come, ahead in (("EventTime", 999, 1_001), ("ProcessingTime", 49_999, 50_001)):
        own = replace(REMOVED, expired=come, timers=(come,))
        assert of("transformWithStateExec", own, mode=mode, timers=True) == "timer"
        deleted = replace(REMOVED, expired=ahead, timers=(ahead,))
        assert of("transformWithStateExec", deleted, mode=mode, timers=True) == "input"
