"""What a person waits for: the state browser in a real JupyterLab and a real Chromium, over large stores.

``python -m benchmarks.looking [--keys N] [--changes N] [--epochs N] [--moves N] [--minutes M] [--out FILE]``
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.large_stores import LargeState, made

# The tests' own JupyterLab and browser.
sys.path.append(str(Path(__file__).parent.parent / "tests"))

_EVERY = 0.2
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


@dataclass(frozen=True)
class Figure:
    """One figure beside its target; less is better."""

    what: str
    value: float
    wanted: float | None
    unit: str
    setting: str

    def row(self) -> str:
        """A line of a Markdown table."""
        target = "" if self.wanted is None else f"< {_readable(self.wanted, self.unit)}"
        kept = "" if self.wanted is None else ("yes" if self.value <= self.wanted else "NO")
        return f"| {self.what} | {_readable(self.value, self.unit)} | {target} | {kept} | {self.setting} |"


def _readable(value: float, unit: str) -> str:
    return f"{value * 1000:,.0f} ms" if unit == "s" else f"{value:.1f} {unit}".strip()


def main() -> None:
    """Measure and print, or, as the process that writes epochs, write them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.looking", description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000, help="keys of the large state")
    parser.add_argument("--changes", type=int, default=50_000, help="keys that an epoch changes")
    parser.add_argument("--epochs", type=int, default=100, help="epochs of the large state")
    parser.add_argument("--moves", type=int, default=40, help="moves of the slider")
    parser.add_argument("--minutes", type=float, default=5, help="how long a growing query is watched; 0: not at all")
    parser.add_argument("--stores", type=Path, help="a folder for the large stores, to be used again")
    parser.add_argument("--out", type=Path, help="a file for the figures, as JSON lines")
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.write:
        _write(chosen.write, chosen.minutes * 60)
        return
    figures = []
    with tempfile.TemporaryDirectory(prefix="streamstate-looking-") as folder:
        for figure in _measured(chosen, Path(folder)):
            figures.append(figure)
            print(figure.row(), flush=True)
    print("\n| what | measured | wanted | kept | setting |\n|---|---|---|---|---|")
    print("\n".join(figure.row() for figure in figures))
    if chosen.out:
        chosen.out.write_text("".join(f"{json.dumps(vars(figure))}\n" for figure in figures), "utf-8")


def _measured(chosen: argparse.Namespace, folder: Path) -> Iterator[Figure]:
    stores = chosen.stores or folder / "stores"
    large = {"keys": chosen.keys, "changes": chosen.changes, "epochs": chosen.epochs, "columns": 4}
    for name, size, rows_bound in (("large", large, 0.15), ("wide", _WIDE, 0.4)):
        place = stores / "-".join([name, *map(str, size.values())])
        made(place, **size)
        with _notebook(folder / name, [_OPEN.format(store=str(place)), _COLD, _SHOWN]) as lab:
            setting = ", ".join(f"{number:,} {what}" for what, number in size.items())
            yield from _looked_at(lab, rows_bound, chosen.moves, setting)
    yield from _exported(stores / "-".join(["large", *map(str, large.values())]), folder)
    if chosen.minutes:
        yield from _followed(folder, chosen.minutes * 60)


def _looked_at(lab: Any, rows_bound: float, moves: int, setting: str) -> Iterator[Figure]:
    """First paint and slider of one store."""
    lab.run_cell(0)
    lab.run_cell(1, timeout=300)
    times = json.loads(_printed(lab, 1))
    for what, name, bound in (
        ("import streamstate and its views", "import", None),
        ("open the store, read the manifest", "store", None),
        ("first view and its output, index cold (newest epoch read)", "cold", None),
        ("index of all epochs", "index", None),
        ("first paint in the kernel: view and output, index there", "warm", 0.3),
    ):
        yield Figure(what, times[name], bound, "s", setting)
    paints = [lab.page.evaluate(_PAINT, 2)]
    for _ in range(4):
        _settle(lab)
        lab.run_cell(1 + 1)
        lab.page.evaluate("() => window.jupyterapp.commands.execute('notebook:clear-cell-output')")
        lab.page.wait_for_timeout(500)
        paints.append(lab.page.evaluate(_PAINT, 2))
    yield Figure("first paint in the browser, from running the cell", statistics.median(paints), 1.0, "s", setting)
    _settle(lab)
    chooser = random.Random(2013)
    last = times["epochs"]
    taken: list[float] = []
    for _ in range(moves + 3):
        taken.append(lab.page.evaluate(_MOVE, chooser.randrange(last)))
        lab.page.wait_for_timeout(chooser.uniform(200, 700))
    yield Figure(
        "slider to any epoch: new rows, median",
        statistics.median(taken[3:]),
        rows_bound,
        "s",
        f"{moves} moves; {setting}",
    )
    yield Figure("slider to any epoch: new rows, 95th percentile", _percentile(taken[3:], 95), None, "s", setting)


def _followed(folder: Path, seconds: float) -> Iterator[Figure]:
    """A query with an epoch every 200 ms, watched while another cell is used."""
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
            [sys.executable, "-m", "benchmarks.looking", "--write", str(store), "--minutes", str(seconds / 60)],
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
    yield Figure("messages in any second", float(_most_a_second(frames)), 5, "", setting)
    settled = memory[len(memory) // 5 :]
    part = max(1, len(settled) // 4)
    first, last = (statistics.median(size for _, size in some) for some in (settled[:part], settled[-part:]))
    yield Figure(
        "growth of the kernel's memory",
        (last / first - 1) * 100,
        5,
        "%",
        f"from {first / 2**20:.0f} to {last / 2**20:.0f} MiB; {setting}",
    )
    yield Figure(
        "a cell that returns a constant, 95th percentile",
        _percentile(answers, 95),
        0.1,
        "s",
        f"{len(answers)} times; {setting}",
    )


def _exported(store: Path, folder: Path) -> Iterator[Figure]:
    """A saved file of the large store: its bytes, and the time until its rows are seen."""
    from browser.lab import FLAGS, chromium
    from playwright.sync_api import sync_playwright

    import streamstate as ss
    from streamstate.widgets import StateBrowser

    began = time.perf_counter()
    report = StateBrowser(ss.open_store(store)["load"]).save(folder / "saved.html")
    took = time.perf_counter() - began
    setting = f"{len(report.epochs)} epochs, {report.drawings} drawings"
    yield Figure("save a view as a file, index cold", took, None, "s", setting)
    yield Figure("the saved file", report.size / 1e6, report.budget / 1e6, "MB", setting)
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
    yield Figure("open the saved file, until rows are seen", statistics.median(opened), 2.0, "s", setting)


@contextmanager
def _notebook(home: Path, cells: Sequence[str]) -> Iterator[Any]:
    """A page of JupyterLab with a notebook of these cells, whose kernel imports this package."""
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
    """What a cell printed last."""
    text: str = lab.page.locator(".jp-CodeCell").nth(cell).locator(".jp-OutputArea-output").last.inner_text()
    return text.strip()


def _settle(lab: Any) -> None:
    """Wait until the view has come to rest: the page has spoken to the kernel for the last time, the counts are in."""
    lab.wait_idle()
    lab.page.wait_for_timeout(1_500)


def _count_frames(lab: Any, frames: list[float]) -> None:
    """From the next page load on keep when each drawing arrived on the line to the kernel."""

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
    """The most that arrived within any second."""
    return max(sum(start <= moment < start + 1 for moment in moments[at : at + 50]) for at, start in enumerate(moments))


def _resident(pid: int) -> int:
    """Bytes of memory that a process holds."""
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
    main()
