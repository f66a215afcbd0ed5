"""The bottleneck of a query, from made records of its load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from streamstate.operations.policies.bottleneck import Bottleneck, bottleneck_of
from streamstate.snapshots.store.epoch_load import EpochLoad, OperatorLoad, SourceLoad, TaskLoad
from streamstate.state_inspect.inputs.heavy_inputs import HeavyInput


def load(seconds: float = 10.0, *, rows: int = 80_000, **tasks: Any) -> EpochLoad:
    """An epoch whose time goes into eight even tasks on two cores."""
    known = TaskLoad(8, 2.4, 2.5, 3, worst_rows=10_100, median_rows=10_000)
    return EpochLoad(
        seconds,
        {"addBatch": seconds - 0.3, "latestOffset": 0.05, "getBatch": 0.02, "commitOffsets": 0.05},
        (SourceLoad("KafkaV2[Subscribe[flights]]", rows),),
        (OperatorLoad("stateStoreSave", 1000, 1000, 1, 2.0, 1.0),),
        replace(known, **tasks),
    )


def never() -> Sequence[HeavyInput]:
    """No keys may be counted."""
    raise AssertionError


def found(*loads: EpochLoad, cores: int = 2, keys: Sequence[HeavyInput] | None = None) -> Bottleneck:
    """The bottleneck of loads, with the keys of their input; without keys, none may be counted."""
    return bottleneck_of(loads, cores, heavy=never if keys is None else lambda: keys)


SKEWED: dict[str, Any] = {
    "median_seconds": 1.0, "worst_seconds": 6.0, "worst_rows": 45_000, "median_rows": 5_000
}  # fmt: skip


def test_all_cores_busy() -> None:
    """More partitions do not help; the operator is named, with what its tasks spend their time on."""
    bottleneck = found(load())
    assert (bottleneck.kind, bottleneck.name, bottleneck.helps) == ("operator", "stateStoreSave", False)
    assert "beside their state stores" in bottleneck.reason
    state = replace(load(), operators=(OperatorLoad("stateStoreSave", 1000, 1000, 1, 12.0, 4.0),))
    assert "in their state stores" in found(state).reason


def test_idle_cores() -> None:
    """With fewer partitions than cores, more of them help."""
    bottleneck = found(load(3.0), cores=16)
    assert (bottleneck.kind, bottleneck.helps) == ("operator", True)
    assert "keep only 8 of 16 cores busy" in bottleneck.reason


def test_a_hot_key() -> None:
    """A key with most rows of the slowest task is named, with its columns and values; partitions do not help."""
    keys = [HeavyInput({"carrier": "ORD", "day": 3}, 0.5), HeavyInput({"carrier": "SFO", "day": 3}, 0.02)]
    bottleneck = found(load(**SKEWED), keys=keys)
    assert (bottleneck.kind, bottleneck.name) == ("hot key", "carrier='ORD', day=3")
    assert (bottleneck.share, bottleneck.helps) == (0.5, False)
    assert "has 50% of all rows" in bottleneck.reason


def test_an_unlucky_hash() -> None:
    """Several heavy keys in one partition can be separated."""
    keys = [HeavyInput({"k": name}, 0.15) for name in "abc"]
    bottleneck = found(load(**SKEWED), keys=keys)
    assert (bottleneck.kind, bottleneck.name, bottleneck.helps) == ("partition", "partition 3", True)


def test_input_that_cannot_be_read_again() -> None:
    """Without the keys, no rescale is suggested."""
    bottleneck = bottleneck_of([load(**SKEWED)], 2)
    assert (bottleneck.kind, bottleneck.helps) == ("partition", False)
    assert "cannot be read again" in bottleneck.reason


def test_a_slow_task_with_no_more_rows() -> None:
    """The machine is the reason, or the work per row: no keys are counted."""
    bottleneck = found(load(**SKEWED | {"worst_rows": 5_100}))
    assert (bottleneck.kind, bottleneck.helps) == ("partition", False)
    assert "with no more rows" in bottleneck.reason


def test_a_slow_task_that_moves() -> None:
    """If another partition is slow in each epoch, no key is the reason."""
    loads = [load(**SKEWED | {"worst_partition": number}) for number in range(5)]
    assert "another one" in found(*loads).reason


@pytest.mark.parametrize(("worst", "is_hot"), [(7_500, True), (5_500, False)])
def test_two_partitions(worst: int, *, is_hot: bool) -> None:
    """The median of two tasks is the shorter one; with half of all rows in one key, the other has three times its."""
    rest = 10_000 - worst
    tasks: dict[str, Any] = {"tasks": 2, "median_seconds": 4.5 * rest / worst, "worst_seconds": 4.5}
    epoch = load(6.0, **tasks, worst_rows=worst, median_rows=rest)
    keys = [HeavyInput({"k": "a"}, 0.5)]
    assert (bottleneck_of([epoch], 2, heavy=lambda: keys).kind == "hot key") == is_hot


def test_a_slow_source() -> None:
    """Asking for offsets and planning takes the time."""
    slow = load(10.0, median_seconds=0.2, worst_seconds=0.3)
    phases = {"latestOffset": 6.0, "getBatch": 1.0, "addBatch": 2.0}
    bottleneck = found(replace(slow, phases=phases))
    assert (bottleneck.kind, bottleneck.name) == ("source", "KafkaV2[Subscribe[flights]]")
    assert bottleneck.share == pytest.approx(0.7)
    assert not bottleneck.helps


def test_a_slow_sink() -> None:
    """What no task takes of the batch is the sink's, and so is committing."""
    bottleneck = found(load(10.0, median_seconds=0.2, worst_seconds=0.3))
    assert (bottleneck.kind, bottleneck.helps) == ("sink", False)
    committing = replace(load(10.0, median_seconds=0.2, worst_seconds=0.3), phases={"commitOffsets": 8.0})
    assert found(committing).kind == "sink"


def test_computing_before_the_state() -> None:
    """If the longest stage keeps no state, its tasks follow from the source."""
    bottleneck = found(load(stateful=False))
    assert (bottleneck.kind, bottleneck.name, bottleneck.helps) == ("operator", "reading and computing", False)


def test_an_uneven_source() -> None:
    """A task that reads much longer than the others reads a heavy partition of the source."""
    bottleneck = found(load(stateful=False, median_seconds=1.0, worst_seconds=6.0))
    assert (bottleneck.kind, bottleneck.name, bottleneck.helps) == ("source", "KafkaV2[Subscribe[flights]]", False)


def test_nothing_wrong() -> None:
    """No part of an epoch stands out; nor does an epoch whose tasks are not known."""
    assert found(load(10.0, median_seconds=0.8, worst_seconds=0.9)).kind is None
    assert found(replace(load(), tasks=None)).kind is None
    assert found().kind is None
