"""The state browser in a real JupyterLab and a real Chromium, over large stores."""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.harness import Measurement, Size, bounded
from benchmarks.large_stores import LargeState, made

# The tests' own JupyterLab and browser.
sys.path.append(str(Path(__file__).parent.parent / "tests"))

_EVERY = 0.2
_MOVES = 40
_WATCHED_SECONDS = 300
_WIDE = {"keys": 50_000, "changes": 2_500, "epochs": 20, "columns": 200}
_FOLLOWED = {"keys": 1_000, "changes": 50}
_SHOW = '"kind": "show"'

_OPEN = """import json, os, time
began = time.perf_counter()
import streamstate as ss
from streamstate.widgets import StateBrowser
def took():
    global began
    seconds, began = time.perf_counter() - began, time.perf_counter()
    return seconds
times = {{"import": took()}}
history = ss.open_store({store!r})["load"]
epochs = history.captured()
times["store"] = took()"""
_COLD = """took()
StateBrowser(history)._repr_mimebundle_()
times["cold"] = took()
history.recorded.interval_table("op0", -1)
times["index"] = took()
warm = []
for _ in range(7):
    took()
    StateBrowser(history)._repr_mimebundle_()
    warm.append(took())
print(json.dumps(times | {"warm": sorted(warm)[3], "epochs": epochs[-1], "pid": os.getpid()}))"""
_SHOWN = "StateBrowser(history)"

# Seconds from running a cell to the rows of the live view, painted.
_PAINT = """async (cell) => {
    const notebook = window.jupyterapp.shell.currentWidget.content;
    notebook.activeCellIndex = cell;
    const before = document.querySelectorAll(".streamstate-live").length;
    const frame = () => new Promise(requestAnimationFrame);
    const began = performance.now();
    void window.jupyterapp.commands.execute("notebook:run-cell");
    for (;;) {
        await frame();
        const views = document.querySelectorAll(".streamstate-live");
        const rows = views.length > before && views[views.length - 1].shadowRoot.querySelector("tbody tr");
        if (rows && rows.offsetHeight > 0) { await frame(); return (performance.now() - began) / 1000; }
        if (performance.now() - began > 60000) throw new Error("no rows within a minute");
    }
}"""
# Seconds from moving the slider to the rows of that epoch, painted; then it waits until the counts are there too.
_MOVE = """async (position) => {
    const views = document.querySelectorAll(".streamstate-live");
    const root = views[views.length - 1].shadowRoot;
    const slider = root.querySelector("input[type=range]");
    const frame = () => new Promise(requestAnimationFrame);
    const suffix = ` at epoch ${position}`;
    const began = performance.now();
    slider.value = position;
    slider.dispatchEvent(new Event("input"));
    slider.dispatchEvent(new Event("change"));
    let took;
    for (;;) {
        await frame();
        const there = root.querySelector("table").getAttribute("aria-label").endsWith(suffix);
        if (there && took === undefined) { await frame(); took = (performance.now() - began) / 1000; }
        if (there && !root.querySelector(".counts").textContent.includes("counting")) return took;
        if (performance.now() - began > 60000) throw new Error(`no rows of epoch ${position} within a minute`);
    }
}"""
# Seconds from running a cell that returns a constant to that constant on the page.
_CONSTANT = """async ([cell, constant]) => {
    const notebook = window.jupyterapp.shell.currentWidget.content;
    const widget = notebook.widgets[cell];
    widget.model.sharedModel.setSource(String(constant));
    notebook.activeCellIndex = cell;
    const began = performance.now();
    void window.jupyterapp.commands.execute("notebook:run-cell");
    for (;;) {
        await new Promise(requestAnimationFrame);
        if (widget.outputArea.node.innerText.includes(String(constant))) return (performance.now() - began) / 1000;
        if (performance.now() - began > 60000) throw new Error("the cell has not answered within a minute");
    }
}"""


def looking(_spark: object, folder: Path, size: Size) -> Iterator[Measurement]:
    """Measure first paint, slider, a saved file and a growing query, in JupyterLab and Chromium."""
    large = {"keys": size.keys, "changes": size.changes, "epochs": size.epochs, "columns": 4}
    for name, shape, rows_bound in (("large", large, 0.15), ("wide", _WIDE, 0.4)):
        made(folder / name, **shape)
        with _notebook(folder / f"{name}-home", [_OPEN.format(store=str(folder / name)), _COLD, _SHOWN]) as lab:
            yield from _looked_at(lab, rows_bound, ", ".join(f"{number:,} {part}" for part, number in shape.items()))
    yield from _exported(folder / "large", folder)
    yield from _followed(folder, _WATCHED_SECONDS)


def _looked_at(lab: Any, rows_bound: float, setting: str) -> Iterator[Measurement]:
    """Measure first paint and slider of one store."""
    lab.run_cell(0)
    lab.run_cell(1, timeout=300)
    times = json.loads(_printed(lab, 1))
    print(f"manifest, first view, index of all epochs: {times}", file=sys.stderr)
    yield bounded(
        "first paint in the kernel", "view and output, index loaded", times["warm"], 0.3, runs=7, setting=setting
    )
    paints = [lab.page.evaluate(_PAINT, 2)]
    for _ in range(4):
        _settle(lab)
        lab.run_cell(2)
        lab.page.evaluate("() => window.jupyterapp.commands.execute('notebook:clear-cell-output')")
        lab.page.wait_for_timeout(500)
        paints.append(lab.page.evaluate(_PAINT, 2))
    yield bounded(
        "first paint in the browser", "from running the cell", statistics.median(paints), 1.0, runs=5, setting=setting
    )
    _settle(lab)
    chooser = random.Random(2013)
    last = times["epochs"]
    taken: list[float] = []
    for _ in range(_MOVES + 3):
        taken.append(lab.page.evaluate(_MOVE, chooser.randrange(last)))
        lab.page.wait_for_timeout(chooser.uniform(200, 700))
    question = "slider to any epoch: new rows"
    yield bounded(question, "median", statistics.median(taken[3:]), rows_bound, runs=_MOVES, setting=setting)
    yield bounded(question, "95th percentile", _percentile(taken[3:], 95), 2 * rows_bound, runs=_MOVES, setting=setting)


def _followed(folder: Path, seconds: float) -> Iterator[Measurement]:
    """Measure a view of a query with an epoch every 200 ms, while another cell runs."""
    store = folder / "followed"
    LargeState(store, **_FOLLOWED).add()
    with _notebook(folder / "follow", [_OPEN.format(store=str(store)), "print(os.getpid())", _SHOWN, "0"]) as lab:
        frames: list[float] = []
        _count_frames(lab, frames)
        for cell in range(3):
            lab.run_cell(cell)
        pid = int(_printed(lab, 1))
        _settle(lab)
        frames.clear()
        writer = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.looking", str(store), str(seconds)],
            stdout=subprocess.PIPE,
            text=True,
        )
        memory: list[tuple[float, int]] = []
        answers: list[float] = []
        try:
            end = time.monotonic() + seconds
            while time.monotonic() < end and writer.poll() is None:
                answers.append(lab.page.evaluate(_CONSTANT, [3, 1_000_000 + len(answers)]))
                memory.append((time.monotonic(), _resident(pid)))
                lab.page.wait_for_timeout(1_000)
        finally:
            writer.terminate()
            output = writer.communicate(timeout=60)[0]
        shown = lab.page.locator(".streamstate-live .epoch").last.inner_text()
    epochs = len(output.split())
    setting = f"{seconds / 60:g} minutes, {epochs:,} epochs written, {shown} shown, {len(frames):,} messages"
    if not frames:
        raise AssertionError("no drawing arrived: nothing was measured")
    yield bounded(
        "a growing query", "messages in any second", _most_a_second(frames), 5, runs=1, setting=setting, unit=""
    )
    settled = memory[len(memory) // 5 :]
    part = max(1, len(settled) // 4)
    first, last = (statistics.median(size for _, size in some) for some in (settled[:part], settled[-part:]))
    yield bounded(
        "the kernel's memory, at the end", "last quarter", last, 1.05 * first, runs=part, setting=setting, unit="B"
    )
    slow = _percentile(answers, 95)
    yield bounded("a cell that returns a constant", "95th percentile", slow, 0.1, runs=len(answers), setting=setting)


def _exported(store: Path, folder: Path) -> Iterator[Measurement]:
    """Measure a saved file: its bytes, and the time until its rows are visible."""
    from browser.lab import FLAGS, chromium
    from playwright.sync_api import sync_playwright

    import streamstate as ss
    from streamstate.widgets import StateBrowser

    report = StateBrowser(ss.open_store(store)["load"]).save(folder / "saved.html")
    setting = f"{len(report.epochs)} epochs, {report.drawings} drawings"
    yield bounded("the saved file", "bytes", report.size, report.budget, runs=1, setting=setting, unit="B")
    opened = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        for _ in range(5):
            page = browser.new_page()
            began = time.perf_counter()
            page.goto((folder / "saved.html").as_uri())
            page.locator("tbody tr:visible").first.wait_for()
            opened.append(time.perf_counter() - began)
            page.close()
        browser.close()
    yield bounded("open the saved file", "until rows are seen", statistics.median(opened), 2.0, runs=5, setting=setting)


@contextmanager
def _notebook(home: Path, cells: Sequence[str]) -> Iterator[Any]:
    """Open a notebook of these cells in JupyterLab."""
    from browser.lab import FLAGS, Lab, Watched, chromium, serving
    from playwright.sync_api import sync_playwright

    with serving(home) as server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        watched = Watched()
        context = browser.new_context(viewport={"width": 1280, "height": 1000})
        watched.watch(context)
        lab = Lab(server, context.new_page(), watched)
        server.write("looking.ipynb", *cells)
        lab.open("looking.ipynb")
        yield lab
        watched.assert_quiet()
        browser.close()
        server.end_kernels()


def _printed(lab: Any, cell: int) -> str:
    """Return a cell's last output."""
    text: str = lab.page.locator(".jp-CodeCell").nth(cell).locator(".jp-OutputArea-output").last.inner_text()
    return text.strip()


def _settle(lab: Any) -> None:
    """Wait until the page is idle and the counts have arrived."""
    lab.wait_idle()
    lab.page.wait_for_timeout(1_500)


def _count_frames(lab: Any, frames: list[float]) -> None:
    """Reload the page and record the time of each drawing on its websocket."""

    def heard(payload: str | bytes) -> None:
        text = payload if isinstance(payload, str) else payload.decode("utf-8", "replace")
        if _SHOW in text or _SHOW.replace(" ", "") in text:
            frames.append(time.monotonic())

    lab.page.on("websocket", lambda line: line.on("framereceived", heard))
    lab.page.reload()
    lab.page.locator(".jp-Notebook").first.wait_for()
    lab.page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.ready")
    lab.wait_idle()


def _most_a_second(moments: Sequence[float]) -> int:
    """Return the largest number of messages within any second."""
    return max(sum(start <= moment < start + 1 for moment in moments[at : at + 50]) for at, start in enumerate(moments))


def _resident(pid: int) -> int:
    """Return the resident memory of a process, in bytes."""
    status = Path(f"/proc/{pid}/status").read_text("utf-8")
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmRSS"))


def _percentile(values: Sequence[float], percent: int) -> float:
    return sorted(values)[min(len(values) - 1, len(values) * percent // 100)]


def _write(store: Path, seconds: float) -> None:
    """Add an epoch every 200 ms, and print each one's number."""
    load = LargeState(store, **_FOLLOWED)
    load.go_on(1)
    due, end = time.monotonic(), time.monotonic() + seconds
    while time.monotonic() < end:
        load.add()
        print(load.epochs - 1, flush=True)
        if load.epochs % 50 == 0:
            load.tidy()
        due = max(due + _EVERY, time.monotonic())
        time.sleep(max(0.0, due - time.monotonic()))


if __name__ == "__main__":
    _write(Path(sys.argv[1]), float(sys.argv[2]))
