"""The debugger in JupyterLab: a real query is forked, stepped, run to a condition, and taken back."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from playwright.sync_api import Locator, expect

from browser.accessible import violations
from browser.lab import Lab

pytestmark = pytest.mark.browser

QUERY = """%load_ext streamstate
import os
import pandas as pd
from pathlib import Path
from pyspark.sql import functions as F
folder = Path({folder!r})
folder.mkdir()
for epoch in range(6):
    rows = {{"carrier": ["UA", "B6", "DL"], "delay": [10 * epoch, 7 * epoch + (300 if epoch == 4 else 0), 5]}}
    pd.DataFrame(rows).to_parquet(folder / f"{{epoch}}.parquet")
    os.utime(folder / f"{{epoch}}.parquet", (epoch, epoch))
import streamstate as ss
spark = ss.session(**{{"spark.sql.shuffle.partitions": 2}})
stream = spark.readStream.schema("carrier string, delay long").option("maxFilesPerTrigger", 1).parquet(str(folder))
delays = stream.groupBy("carrier").agg(F.max("delay").alias("max_delay"))"""
RUN = """%%stream delays --trigger available-now --store {store}
delays"""
DEBUG = "%stream wait delays\n%stream debug delays --at 1"


@pytest.fixture
def view(lab: Lab, tmp_path: Path) -> Locator:
    """A debugger at the second epoch of a query with six epochs."""
    folder, store = str(tmp_path / "input"), str(tmp_path / "store")
    lab.server.write("debug.ipynb", QUERY.format(folder=folder), RUN.format(store=store), DEBUG)
    lab.open("debug.ipynb")
    lab.run_all(timeout=600)
    found = lab.page.locator(".streamstate-live").last
    expect(found.locator(".debugger")).to_be_visible()
    return found


@pytest.mark.slow
def test_stepping_running_going_back_and_watching(lab: Lab, view: Locator) -> None:
    """Every button works as labelled, and the view shows what Spark computed."""
    button = partial(view.get_by_role, "button", exact=True)
    facts, status, rows = view.locator(".head .facts"), view.locator(".status"), view.locator(".changed tbody tr")
    expect(facts).to_contain_text("at epoch 1")
    expect(facts).to_contain_text("forked from delays after epoch 1")
    view.get_by_label("Expression to watch").fill("max(max)")
    lab.page.keyboard.press("Enter")
    watched = view.locator(".watches tbody tr")
    expect(watched).to_contain_text("10")
    button(name="Step").click()
    expect(facts).to_contain_text("at epoch 2", timeout=180_000)
    expect(status).to_contain_text("rows in 3")
    expect(rows).to_have_count(2)
    expect(rows.filter(has_text="UA")).to_contain_text("10 →  became 20 +10")
    expect(watched).to_contain_text("+10")
    view.get_by_label("Run until: a condition").fill("max > 300")
    lab.page.keyboard.press("Enter")
    expect(facts).to_contain_text("at epoch 4", timeout=180_000)
    expect(rows.filter(has_text="B6")).to_contain_text("328")
    expect(watched.locator("svg")).to_be_visible()
    button(name="Back").click()
    expect(facts).to_contain_text("at epoch 3", timeout=180_000)
    button(name="Step").click()
    expect(view.locator(".name")).to_have_text("debug_delays_2", timeout=180_000)
    expect(view.locator(".lane")).to_have_text(["delays", "debug_delays", "debug_delays_2"])
    dot = view.get_by_role("button", name="debug_delays, epoch 2", exact=True)
    dot.click()
    expect(view.locator(".looked strong")).to_have_text("Epoch 2 of debug_delays")
    lab.page.keyboard.press("ArrowRight")
    lab.page.keyboard.press("Enter")
    expect(view.locator(".looked strong")).to_have_text("Epoch 3 of debug_delays")
    button(name="Current position").click()
    view.get_by_label("Run until: a condition").fill("no_such > 1")
    button(name="Run until").click()
    expect(view.locator(".trouble")).to_contain_text("no_such", timeout=180_000)
    for theme in ("JupyterLab Light", "JupyterLab Dark"):
        lab.theme(theme)
        assert violations(view) == []
