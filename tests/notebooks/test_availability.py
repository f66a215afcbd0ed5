"""The notebook on availability. It asserts what it claims."""

from __future__ import annotations

import pytest

import streamstate as ss
from notebooks.running import RUNS, Shown, latest_run, output_of, shows_no_noise
from streamstate.operations.availability.lease import STOPPED, Lease
from streamstate.snapshots.store.layout import Layout

pytestmark = [pytest.mark.slow, pytest.mark.notebook, pytest.mark.timeout(5400)]  # may run all of it


@pytest.fixture(scope="module")
def availability() -> Shown:
    """The outputs of the notebook on availability."""
    return latest_run("10_availability")


def test_three_processes_owned_the_query(availability: Shown) -> None:
    """One after the other: the notebook, the new code, and its standby, which stopped it at the end."""
    store = RUNS / "10_availability" / "streamstate-data" / "availability" / "store"
    newest = Lease.of(Layout.at(store), "delays").newest()
    assert newest is not None
    assert (newest.number, newest.released) == (3, STOPPED)
    history = ss.open_store(store)["delays"]
    assert history.captured() == [*range(history.live().epoch + 1)]
    assert "share" in history.live().result().to_pandas()


def test_code_that_means_something_else_is_not_handed_over_to(availability: Shown) -> None:
    """The cell prints what the check found."""
    assert "changed (value_expression)" in output_of(availability, "hand_over(later)")


def test_the_notebook_on_availability_shows_no_noise(availability: Shown) -> None:
    """There is no output of Spark or Java, and no local path."""
    assert shows_no_noise(availability)


def test_the_notebook_on_availability_waits_for_its_reader(availability: Shown) -> None:
    """Predictions and the reader's own rule and query are not answered yet, and nothing is revealed."""
    said = [text for source, text in availability if "P10." in source and "P10.progress" not in source]
    assert {text.split()[0] for text in said} == {"…"}
    assert len(said) == 8
