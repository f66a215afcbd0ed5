"""The notebook on sharing state. It asserts what it claims."""

from __future__ import annotations

import pytest

import streamstate as ss
from notebooks.running import RUNS, Shown, latest_run, output_of, shows_no_noise

pytestmark = [pytest.mark.slow, pytest.mark.notebook, pytest.mark.timeout(5400)]  # may run all of it


@pytest.fixture(scope="module")
def sharing() -> Shown:
    """The outputs of the notebook on sharing state."""
    return latest_run("11_sharing_state")


def test_both_sides_have_what_the_contracts_grant(sharing: Shown) -> None:
    """The copy has the granted epochs and columns; the contracts tell how it ended."""
    folder = RUNS / "11_sharing_state" / "streamstate-data" / "sharing"
    copy = ss.open_store(folder / "copy")["jetblue"]
    assert copy.captured() == [*range(3, 20)]
    assert copy.live().table().schema.names == ["origin", "departures", "delay"]
    contracts = [ss.open_store(folder / name).contracts() for name in ("jetblue", "delta")]
    assert [[contract.state for contract in each] for each in contracts] == [["active"], ["revoked"]]


def test_a_guessed_token_is_refused(sharing: Shown) -> None:
    """The cell prints what the server says."""
    assert "The token is not valid, or no longer." in output_of(sharing, "guessed")


def test_the_notebook_on_sharing_shows_no_noise(sharing: Shown) -> None:
    """There is no output of Spark or Java, and no local path."""
    assert shows_no_noise(sharing)
