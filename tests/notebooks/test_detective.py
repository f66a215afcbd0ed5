"""The notebook on state as a database: the detective story. It asserts what it claims."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import streamstate as ss
from notebooks.running import RUNS, Shown, first_row, latest_run, output_of, run_again, shows_no_noise

pytestmark = [pytest.mark.slow, pytest.mark.timeout(5400)]  # the first test may run all of it


@pytest.fixture(scope="module")
def detective() -> Shown:
    """The outputs of the detective story."""
    return latest_run("02_state_as_a_database")


@pytest.fixture(scope="module")
def detective_folder(detective: Shown) -> Path:
    """The folder in which the detective story ran."""
    return RUNS / "02_state_as_a_database"


def test_the_detective_finds_the_flight_and_its_life(detective: Shown, detective_folder: Path) -> None:
    """The store confirms what the text says about flight 51: when it was added and removed, and both causes."""
    assert "N384HA" in output_of(detective, "witness = cut.sql(")
    assert output_of(detective, "events = other.key_history").count("watermark") == 2
    store = ss.open_store(detective_folder / "streamstate-data" / "detective" / "store")
    flight = "SELECT _valid_from, _valid_to FROM weather.op0_left.history WHERE flight = 51 AND dep_delay > 1000"
    assert store.sql(flight).to_arrow().to_pylist() == [{"_valid_from": 1, "_valid_to": 2}]


def test_the_detectives_numbers_match_the_feed(detective: Shown, detective_folder: Path) -> None:
    """The dashboard's first row, computed from the departures, without a query or its state."""
    feed = sorted((detective_folder / "streamstate-data" / "flights" / "flights").glob("*.parquet"))[:25]
    departures = pd.concat([pd.read_parquet(file) for file in feed])
    means = departures.groupby(["carrier", "origin"])["dep_delay"].agg(["count", "mean"]).query("count >= 50")["mean"]
    first = first_row(detective, "-o board")
    assert means.sort_values().index.to_list()[-1] == ("HA", "JFK")
    assert f"{means.max():.1f}" in first
    assert "Hawaiian Airlines Inc." in first


def test_the_detectives_watch_fires_once(detective: Shown) -> None:
    """It fires for the one key that starts to match, not for those that matched before."""
    assert output_of(detective, "rang.get").splitlines()[-1].split()[1:3] == ["DL", "JFK"]


def test_the_detective_story_shows_no_noise(detective: Shown) -> None:
    """There is no output of Spark or Java, and no local path."""
    assert shows_no_noise(detective)


@pytest.mark.exhaustive
def test_the_detective_story_can_run_again_in_its_folder(detective: Shown, detective_folder: Path) -> None:
    """It starts over, whatever an earlier run left."""
    again = run_again("02_state_as_a_database", detective_folder)
    assert output_of(again, "untouched = history") == output_of(detective, "untouched = history")
