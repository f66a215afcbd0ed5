"""Epochs whose records a topic has deleted, from offsets alone. The tests of Kafka ask a broker."""

from __future__ import annotations

import pytest

from streamstate.snapshots.spark.kafka_broker import Topic
from streamstate.state_inspect.inputs.kafka_losses import last_loss

ENDS = {
    -1: {"flights": {"0": 0, "1": 100}},
    0: {"flights": {"0": 10, "1": 100}},
    1: {"flights": {"0": 10, "1": 130}},
    2: {"flights": {"0": 20, "1": 130, "2": 7}},
    5: {"flights": {"0": 90, "1": 130, "2": 9}},
}


@pytest.mark.parametrize(
    ("first", "gone"),
    [
        ({0: 0, 1: 0, 2: 0}, None),
        ({0: 0, 1: 100, 2: 0}, None),
        ({0: 1, 1: 0, 2: 0}, (0, ["records 0 to 0 of the topic flights, partition 0"])),
        ({0: 10, 1: 0, 2: 0}, (0, ["records 0 to 9 of the topic flights, partition 0"])),
        ({0: 0, 1: 101, 2: 0}, (1, ["records 100 to 100 of the topic flights, partition 1"])),
        ({0: 11, 1: 0, 2: 0}, (2, ["records 10 to 10 of the topic flights, partition 0"])),
        ({0: 11, 1: 0, 2: 3}, (2, ["records 10 to 10 of the topic flights, partition 0 and 0 to 2 of partition 2"])),
    ],
)
def test_an_epoch_is_gone_if_its_first_record_is(first: dict[int, int], gone: object) -> None:
    """Offsets before the start of the query do not matter, and those that an epoch after a gap read are not known."""
    topic = Topic("id", first, {0: 100, 1: 130, 2: 9}, {})
    assert last_loss(ENDS, {"flights": topic}, lambda _: {}) == gone


def test_a_topic_that_was_created_again_has_lost_the_epochs_before() -> None:
    """The ids of the topics are those that the plan of each epoch has."""
    topic = Topic("new", {0: 0, 1: 0, 2: 0}, {0: 100, 1: 130, 2: 9}, {})
    lost = last_loss(ENDS, {"flights": topic}, lambda epoch: {"flights": "old" if epoch < 2 else "new"})
    assert lost is not None
    assert (lost[0], lost[1][0].startswith("the topic flights was deleted and created again")) == (1, True)
