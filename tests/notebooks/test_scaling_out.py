"""The notebook on scaling out and recovery; it, too, asserts what it claims."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import streamstate as ss
from notebooks.running import Shown, of, run, shows_only_its_own
from streamstate.tutorials.medians import median_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # the first test runs all of it


@pytest.fixture(scope="module")
def scaling_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the notebook on scaling out and recovery runs."""
    return tmp_path_factory.mktemp("scaling")


@pytest.fixture(scope="module")
def scaling(scaling_folder: Path) -> Shown:
    """The notebook on scaling out and recovery; it, too, asserts what it claims."""
    return run("05_scale_out_and_recovery", scaling_folder)


def test_the_heaviest_key_is_the_feeds(scaling: Shown, scaling_folder: Path) -> None:
    """The floor that no number of partitions gets below, counted from the departures themselves."""
    feed = sorted((scaling_folder / "streamstate-data" / "weeks" / "flights").glob("*.parquet"))[:6]
    departed = pd.concat([pd.read_parquet(file) for file in feed]).dropna(subset=["dep_delay"])
    heaviest = departed.groupby("carrier")["dep_delay"].nunique().max()
    rows = [line.split() for line in of(scaling, "further = ss.rescale").splitlines() if line[:1].isdigit()]
    assert [(row[0], int(row[3])) for row in rows] == [("2", heaviest), ("8", heaviest), ("16", heaviest)]
    assert int(rows[0][1]) > int(rows[1][1]) >= heaviest


def test_the_medians_are_right(scaling: Shown, scaling_folder: Path) -> None:
    """The state at the end, spread anew three times, is the departures' delays, carrier by carrier."""
    feed = sorted((scaling_folder / "streamstate-data" / "weeks" / "flights").glob("*.parquet"))[:7]
    departed = pd.concat([pd.read_parquet(file) for file in feed]).dropna(subset=["dep_delay"])
    history = ss.open_store(scaling_folder / "streamstate-data" / "scaling" / "store")["medians"]
    state = history.live().table().to_pandas()
    found = {
        carrier: median_of(dict(zip(one["delay"], one["flights"], strict=True)))
        for carrier, one in state.groupby("carrier")
    }
    assert found == departed.groupby("carrier")["dep_delay"].median().to_dict()


def test_the_drill_of_the_notebook_recovers(scaling: Shown) -> None:
    """What the prose says of the report is what the report says."""
    shown = of(scaling, "report = ss.drill")
    assert "while epoch 2 was under way" in shown
    assert "The state at epoch 2 is the same, key by key" in shown


def test_the_notebook_on_scaling_out_shows_nothing_but_its_own(scaling: Shown) -> None:
    """As for the notebook on consistency."""
    assert shows_only_its_own(scaling)
