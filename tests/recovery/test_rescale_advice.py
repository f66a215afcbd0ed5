"""How many partitions a state should have, and why; no Spark is needed for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import synthetic

import streamstate as ss
from streamstate.recovery.advice import Facts, advise
from streamstate.snapshots.errors import InvalidArgumentError

MILLION = 1_000_000


def facts(rows: list[int], cores: int = 4, **more: Any) -> Facts:
    """A state with some rows in each partition."""
    return Facts(len(rows), rows, cores, **more)


def test_what_fits_is_kept() -> None:
    """Nothing is suggested where nothing is gained, and the reason says so."""
    advice = advise(facts([500_000] * 4))
    assert not advice.changes
    assert advice.reasons == ("4 partitions fit 2,000,000 rows of state and 4 cores.",)
    assert repr(advice).startswith("Keep the 4 partitions.")


def test_idle_cores() -> None:
    """Fewer partitions than cores leave cores without work; of a tiny state that does not matter."""
    advice = advise(facts([400_000, 400_000]))
    assert advice.suggested == 4
    assert "4 tasks can run at once and 2 partitions keep only 2 of them busy." in advice.reasons
    assert advise(facts([40, 50])).suggested == 2


def test_a_large_state_is_spread_in_whole_rounds() -> None:
    """As many partitions as hold it, made a multiple of the cores."""
    advice = advise(facts([5 * MILLION // 2] * 4))
    assert advice.suggested == 12
    assert "2,500,000 rows; about 1,000,000 a task" in advice.reasons[0]


def test_many_small_partitions() -> None:
    """Two hundred tasks for a few rows cost more than they give: scale in."""
    advice = advise(facts([3] * 200))
    assert advice.suggested == 4
    assert "200 partitions have 3 rows each" in advice.reasons[0]


def test_a_heavy_key_cannot_be_split() -> None:
    """More partitions than the heaviest key leaves room for are not suggested, and the key is named."""
    rows = [400_000 + 150_000, *[150_000] * 3]
    advice = advise(facts(rows, cores=16, heaviest="k='ORD'", heaviest_rows=400_000))
    assert advice.suggested == 4
    assert any(
        "One key, k='ORD', has 40% of the rows. A key cannot be split: more than 2" in one for one in advice.reasons
    )


def test_skew_without_a_heavy_key() -> None:
    """An uneven spread of many keys is told from one key that is too heavy."""
    (reason,) = advise(facts([900_000, 100_000, 100_000, 100_000])).reasons
    assert "3.0 times the rows of an average one, and no key is to blame" in reason


@pytest.mark.parametrize(("cores", "helps"), [(2, False), (8, True)])
def test_times(cores: int, helps: bool) -> None:
    """Where epochs take too long, more partitions help only while there are cores for them."""
    advice = advise(facts([500_000] * 4, cores, behind=True, epoch_seconds=3.0, state_seconds=2.0))
    (told,) = (one for one in advice.reasons if "an epoch takes 3.0 s, in which the tasks spend 2.0 s" in one)
    assert ("more partitions alone will not help" in told) != helps
    assert advice.changes == helps


def test_html_is_escaped() -> None:
    """A key may hold anything."""
    advice = advise(facts([100, 100], heaviest="k='<b>'", heaviest_rows=100))
    assert "&lt;b&gt;" in advice._repr_html_()
    assert "<b>Keep" in advice._repr_html_()


def test_a_history_alone_will_do(store: ss.Store) -> None:
    """Rows and skew come from what was captured; the partitions from the checkpoint, where it is still there."""
    advice = ss.rescale_advice(store["counts"], cores=4)
    assert advice.facts.partitions == 2
    assert sum(advice.facts.rows) == store["counts"].live().table().count()
    assert sum(advice.facts.bytes) > 0
    assert not advice.changes
    with pytest.raises(InvalidArgumentError, match="cores=0"):
        ss.rescale_advice(store["counts"], cores=0)


def test_a_checkpoint_that_is_gone(tmp_path: Path) -> None:
    """The partitions are then those that have rows."""
    synthetic.write(tmp_path / "store", [{"a": 1, "b": 2}])
    advice = ss.rescale_advice(ss.open_store(tmp_path / "store")["q"], cores=1)
    assert (advice.facts.partitions, [*advice.facts.rows]) == (1, [2])
