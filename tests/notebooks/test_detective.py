"""The notebook on state as a database: the detective story; it, too, asserts what it claims."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import streamstate as ss
from notebooks.running import Shown, first_row, of, run, shows_only_its_own

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # the first test runs all of it


@pytest.fixture(scope="module")
def detective_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the detective story runs."""
    return tmp_path_factory.mktemp("detective")


@pytest.fixture(scope="module")
def detective(detective_folder: Path) -> Shown:
    """The detective story; it, too, asserts what it claims."""
    return run("02_state_as_a_database", detective_folder)


def test_the_detective_finds_the_flight_and_what_became_of_it(detective: Shown, detective_folder: Path) -> None:
    """The prose names flight 51, the epochs of its coming and going, and both causes; the store says the same."""
    assert "N384HA" in of(detective, "witness = cut.sql(")
    assert of(detective, "events = other.life").count("watermark") == 2
    store = ss.open_store(detective_folder / "streamstate-data" / "detective" / "store")
    flight = "SELECT _valid_from, _valid_to FROM weather.op0_left.history WHERE flight = 51 AND dep_delay > 1000"
    assert store.sql(flight).to_arrow().to_pylist() == [{"_valid_from": 1, "_valid_to": 2}]


def test_the_detectives_numbers_are_those_of_the_feed(detective: Shown, detective_folder: Path) -> None:
    """The dashboard's first row, computed from the departures themselves, without a query or its state."""
    feed = sorted((detective_folder / "streamstate-data" / "flights" / "flights").glob("*.parquet"))[:25]
    departures = pd.concat([pd.read_parquet(file) for file in feed])
    means = departures.groupby(["carrier", "origin"])["dep_delay"].agg(["count", "mean"]).query("count >= 50")["mean"]
    first = first_row(detective, "-o board")
    assert means.sort_values().index.to_list()[-1] == ("HA", "JFK")
    assert f"{means.max():.1f}" in first
    assert "Hawaiian" in first


def test_the_detectives_trap_rings_once(detective: Shown) -> None:
    """For the one key that begins to meet the condition, not for those that met it before."""
    assert of(detective, "rang.get").splitlines()[-1].split()[1:3] == ["DL", "JFK"]


def test_the_detective_story_shows_nothing_but_its_own(detective: Shown) -> None:
    """As for the notebook on consistency."""
    assert shows_only_its_own(detective)


@pytest.mark.exhaustive
def test_the_detective_story_runs_again_where_it_ran(detective: Shown, detective_folder: Path) -> None:
    """It begins anew, whatever an earlier run left."""
    again = run("02_state_as_a_database", detective_folder)
    assert of(again, "untouched = history") == of(detective, "untouched = history")
