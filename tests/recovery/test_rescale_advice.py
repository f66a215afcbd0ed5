"""Advice on a state's number of partitions, without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import synthetic

import streamstate as ss
from streamstate.errors import InvalidArgumentError
from streamstate.operations.rescaling.advice import RescaleFacts, advice_from, rescale_advice
from streamstate.reports import Store

MILLION = 1_000_000


def facts(rows: list[int], cores: int = 4, **more: Any) -> RescaleFacts:
    """The facts of a state with the given rows per partition."""
    return RescaleFacts(len(rows), rows, cores, **more)


def test_a_suitable_number_is_kept() -> None:
    """No change is suggested, and the reason says why."""
    advice = advice_from(facts([500_000] * 4))
    assert not advice.changes
    assert advice.reasons == ("4 partitions suit 2,000,000 rows of state and 4 cores.",)
    assert repr(advice).startswith("Keep the 4 partitions.")


def test_idle_cores_get_partitions() -> None:
    """More partitions are suggested for fewer partitions than cores, unless the state is tiny."""
    advice = advice_from(facts([400_000, 400_000]))
    assert advice.suggested == 4
    assert "4 tasks can run at once, but 2 partitions keep only 2 of them busy." in advice.reasons
    assert advice_from(facts([40, 50])).suggested == 2


def test_a_large_state_gets_a_multiple_of_the_cores() -> None:
    """The number is rounded up, so that no core is idle in the last round of tasks."""
    advice = advice_from(facts([5 * MILLION // 2] * 4))
    assert advice.suggested == 12
    assert "2,500,000 rows; a task should hold about 1,000,000" in advice.reasons[0]


def test_many_small_partitions_are_merged() -> None:
    """Fewer partitions are suggested for partitions with a few rows each."""
    advice = advice_from(facts([3] * 200))
    assert advice.suggested == 4
    assert "200 partitions have 3 rows each" in advice.reasons[0]


def test_a_heavy_key_limits_the_partitions() -> None:
    """A key cannot be split. The reason names the heaviest key and its share of the rows."""
    rows = [400_000 + 150_000, *[150_000] * 3]
    advice = advice_from(facts(rows, cores=16, heaviest="k='ORD'", heaviest_rows=400_000))
    assert advice.suggested == 4
    heavy = "A single key, k='ORD', has 40% of the rows. A key cannot be split: more than 2"
    assert any(heavy in reason for reason in advice.reasons)


def test_skew_without_a_heavy_key() -> None:
    """The reason says that no single key is heavy."""
    (reason,) = advice_from(facts([900_000, 100_000, 100_000, 100_000])).reasons
    assert "3.0 times the rows of an average one, although no single key is heavy" in reason


@pytest.mark.parametrize(("cores", "helps"), [(2, False), (8, True)])
def test_slow_epochs_get_partitions_for_free_cores(cores: int, helps: bool) -> None:
    """If the query is behind, more partitions are suggested only if there are cores for them."""
    advice = advice_from(facts([500_000] * 4, cores, behind=True, epoch_seconds=3.0, state_seconds=2.0))
    times = "an epoch takes 3.0 s, in which all tasks together spend 2.0 s"
    (reason,) = (reason for reason in advice.reasons if times in reason)
    assert ("More partitions alone will not help" in reason) != helps
    assert advice.changes == helps


def test_html_is_escaped() -> None:
    """Keys are shown as text."""
    advice = advice_from(facts([100, 100], heaviest="k='<b>'", heaviest_rows=100))
    assert "&lt;b&gt;" in advice._repr_html_()
    assert "<b>Keep" in advice._repr_html_()


def test_a_history_is_enough(store: Store) -> None:
    """Rows are taken from the captured state, and the number of partitions from the checkpoint."""
    advice = rescale_advice(store["counts"], cores=4)
    assert advice.facts.partitions == 2
    assert sum(advice.facts.rows) == store["counts"].live().table().count()
    assert sum(advice.facts.bytes) > 0
    assert not advice.changes
    with pytest.raises(InvalidArgumentError, match="cores=0"):
        rescale_advice(store["counts"], cores=0)


def test_advice_without_a_checkpoint(tmp_path: Path) -> None:
    """The partitions with captured rows are counted."""
    synthetic.write(tmp_path / "store", [{"a": 1, "b": 2}])
    advice = rescale_advice(ss.open_store(tmp_path / "store")["q"], cores=1)
    assert (advice.facts.partitions, [*advice.facts.rows]) == (1, [2])
