"""The notebook on shared variables. It asserts what it claims."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import streamstate as ss
from notebooks.running import RUNS, Shown, latest_run, output_of, shows_no_noise

pytestmark = [pytest.mark.slow, pytest.mark.notebook, pytest.mark.timeout(5400)]  # may run all of it


@pytest.fixture(scope="module")
def shared() -> Shown:
    """The outputs of the notebook on shared variables."""
    return latest_run("06_shared_variables")


@pytest.fixture(scope="module")
def shared_folder(shared: Shown) -> Path:
    """The folder in which the notebook on shared variables ran."""
    return RUNS / "06_shared_variables"


def test_the_state_is_what_the_limits_that_epochs_saw_make_of_the_feed(shared: Shown, shared_folder: Path) -> None:
    """Each file's departures, counted with the limit of its epoch; and those that are four hours late, once each."""
    store = ss.open_store(shared_folder / "streamstate-data" / "shared" / "store")
    history, limits = store["late"], ss.shared(store.path, "limit").history().set_index("version")["value"]
    files = sorted((shared_folder / "streamstate-data" / "two-days" / "flights").glob("*.parquet"))
    seen = history.bindings().query("variable == 'limit'").set_index("epoch")["version"].map(limits)
    epochs = history.epochs().set_index("epoch")
    with_input = [epoch for epoch in seen.index if epochs["input_rows"][epoch]]
    departures = {epoch: pd.read_parquet(file) for epoch, file in zip(with_input, files, strict=False)}
    expected = sum((rows["dep_delay"] > seen[epoch]).sum() for epoch, rows in departures.items())
    assert history.live().table().to_pandas()["count"].sum() == expected
    late = sum((rows["dep_delay"] > 240).sum() for rows in departures.values())
    assert len(ss.shared(store.path, "alerts").get()) == late > 0


def test_the_timeline_marks_the_limit(shared: Shown) -> None:
    """From the first epoch that saw it, as the text says."""
    assert "limit = 15" not in output_of(shared, "timeline = Timeline")
    assert output_of(shared, "%shared limit --slider").startswith("limit = 15: version 1")


def test_the_model_was_trained_by_four_tasks(shared: Shown) -> None:
    """Its coefficients are those of all flights of the feed together."""
    assert "line is [" in output_of(shared, "VariableView(line")
    assert "arrivals saw it from epoch" in output_of(shared, "VariableView(line")


def test_the_notebook_on_shared_variables_waits_for_its_reader(shared: Shown) -> None:
    """Predictions and the reader's own rule and query are not answered yet, and nothing is revealed."""
    said = [text.split()[0] for source, text in shared if "P06." in source]
    assert said == [*["…"] * 6, "i"]


def test_the_notebook_on_shared_variables_shows_no_noise(shared: Shown) -> None:
    """There is no output of Spark or Java, and no local path."""
    assert shows_no_noise(shared)
