"""Starts a real JupyterLab and a real Chromium, for tests of what a user sees."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

import nbformat
from playwright.sync_api import BrowserContext, ConsoleMessage, Locator, Page

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
CONFIG = """
c.ServerApp.ip = "127.0.0.1"
c.ServerApp.port_retries = 0
c.ServerApp.open_browser = False
c.ServerApp.allow_root = True
c.LabApp.expose_app_in_browser = True
c.LabApp.news_url = None
c.LabApp.check_for_updates_class = "jupyterlab.NeverCheckForUpdate"
"""
SETTINGS = {"@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False}}
RUN_ALL = """async (limit) => {
    const ran = window.jupyterapp.commands.execute("notebook:run-all-cells").then(() => "ran");
    return Promise.race([ran, new Promise((resolve) => setTimeout(() => resolve("late"), limit))]);
}"""
IDLE = "() => window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'"
CELLS = "window.jupyterapp.shell.currentWidget.content.widgets"
COUNT = f"at => {CELLS}[at].model.executionCount"
ERRORS = f"""() => {CELLS}.flatMap((cell) => cell.model.outputs?.toJSON() ?? [])
    .filter((output) => output.output_type === "error").map((error) => `${{error.ename}}: ${{error.evalue}}`)"""
SCROLLED = """(y) => {
    const outer = window.jupyterapp.shell.currentWidget.content.node.querySelector(".jp-WindowedPanel-outer");
    outer.scrollTop = y;
}"""
HEIGHTS = """() => {
    const notebook = window.jupyterapp.shell.currentWidget.content.node;
    const outer = notebook.querySelector(".jp-WindowedPanel-outer");
    const bottom = [...notebook.querySelectorAll(".jp-Notebook-cell")].at(-1).getBoundingClientRect().bottom;
    const end = bottom - outer.getBoundingClientRect().top + outer.scrollTop;
    return [outer.scrollHeight, outer.clientHeight, end];
}"""
LOCAL = {"localhost", "127.0.0.1", ""}
KNOWN_NOISE = (
    re.compile(r"^Connection lost, reconnecting in"),
    re.compile(r"^Plugin @jupyterlab/\S+ \(.*\) took [\d.]+ms to activate"),
)
"""Console messages of JupyterLab itself, about kernel restarts and a start that takes longer than 5 s."""


def chromium() -> str | None:
    """The path of the Chromium to start: from the environment, from the system, or None for Playwright's own."""
    named = os.environ.get("STREAMSTATE_CHROMIUM")
    return named or next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def wait_until(condition: Callable[[], Any], what: str, timeout: float = 120) -> Any:
    """Wait until ``condition`` returns a true value, and return that value."""
    end = time.monotonic() + timeout
    while not (value := condition()):
        if time.monotonic() > end:
            raise TimeoutError(f"waited {timeout} s for {what}")
        time.sleep(0.05)
    return value


@dataclass
class Server:
    """A running JupyterLab with its own home folder."""

    folder: Path
    url: str
    token: str

    def write(self, name: str, *cells: str) -> Path:
        """Write a notebook with these code cells to the server's folder."""
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
        notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
        nbformat.write(notebook, self.folder / name)
        return self.folder / name

    def api(self, path: str, method: str = "GET") -> Any:
        """Call the server's REST API."""
        request = urllib.request.Request(f"{self.url}/api/{path}", method=method)
        request.add_header("Authorization", f"token {self.token}")
        with urllib.request.urlopen(request) as answer:
            body = answer.read()
        return json.loads(body) if body else None

    def end_kernels(self) -> None:
        """Shut down every session, so that the next notebook starts with a new kernel."""
        for session in self.api("sessions"):
            self.api(f"sessions/{session['id']}", "DELETE")


@contextmanager
def serving(home: Path) -> Iterator[Server]:
    """Run JupyterLab on a free local port with default settings until the block ends."""
    folder = home / "notebooks"
    folder.mkdir(parents=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    token = secrets.token_hex(16)
    config = home / "config" / "jupyter_lab_config.py"
    config.parent.mkdir()
    config.write_text(CONFIG)
    settings = config.parent / "labconfig" / "default_setting_overrides.json"
    settings.parent.mkdir()
    settings.write_text(json.dumps(SETTINGS))
    command = [sys.executable, "-m", "jupyterlab", f"--port={port}", f"--ServerApp.root_dir={folder}"]
    command += [f"--IdentityProvider.token={token}"]
    with (home / "server.log").open("wb") as log:
        process = subprocess.Popen(command, env=_environment(home), stdout=log, stderr=log)
    server = Server(folder, f"http://127.0.0.1:{port}", token)
    try:
        wait_until(lambda: _answers(server, process), "JupyterLab to start", 60)
        yield server
    finally:
        process.terminate()
        process.wait(20)


def _environment(home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("JUPYTER", "IPYTHON"))}
    folders = {"JUPYTER_CONFIG_DIR": "config", "JUPYTER_DATA_DIR": "data", "JUPYTER_RUNTIME_DIR": "runtime"}
    return kept | {name: str(home / folder) for name, folder in folders.items()} | {"HOME": str(home)}


def _answers(server: Server, process: subprocess.Popen[bytes]) -> bool:
    if process.poll() is not None:
        raise RuntimeError(f"JupyterLab ended with {process.returncode}: see server.log")
    try:
        return bool(server.api("status"))
    except OSError:
        return False


@dataclass
class Watched:
    """Console messages, errors and external requests of a page."""

    console: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)

    def watch(self, context: BrowserContext) -> None:
        """Listen to every page of the context."""
        context.on("console", self._on_console)
        context.on("weberror", lambda error: self.errors.append(str(error.error)))
        context.on("request", lambda request: self._on_request(request.url))

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not any(known.search(message.text) for known in KNOWN_NOISE):
            self.console.append(f"{message.type}: {message.text} ({message.location.get('url', '')})")

    def _on_request(self, url: str) -> None:
        address = urlsplit(url)
        if address.scheme in ("http", "https", "ws", "wss") and (address.hostname or "") not in LOCAL:
            self.outside.append(url)

    def assert_quiet(self) -> None:
        """Fail if there was a console message, an error, or a request to another machine."""
        observed = {"console": self.console, "errors": self.errors, "requests": self.outside}
        assert not any(observed.values()), observed


class Heights(NamedTuple):
    """Heights of an open notebook, in pixels."""

    scroll: float
    """The scrollable height."""
    page: float
    """The visible height; JupyterLab lets a notebook scroll this far past its last cell."""
    cells: float
    """The bottom of the last cell."""


@dataclass
class Lab:
    """One notebook open in one page."""

    server: Server
    page: Page
    watched: Watched

    def open(self, name: str) -> None:
        """Open a notebook and wait for its kernel."""
        self.page.goto(f"{self.server.url}/lab/tree/{quote(name)}?reset&token={self.server.token}")
        self.page.locator(".jp-Notebook").first.wait_for()
        self.page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.ready")
        self.wait_idle()

    def run(self, command: str) -> None:
        """Start a JupyterLab command by name, without waiting for it."""
        self.page.evaluate("command => void window.jupyterapp.commands.execute(command)", command)

    def wait_idle(self, timeout: float = 300) -> None:
        """Wait until the kernel has started and is idle."""
        self.page.wait_for_function(IDLE, timeout=timeout * 1000)

    def set_source(self, cell: int, code: str) -> None:
        """Set the source of a cell."""
        self.page.evaluate(
            f"([at, code]) => {CELLS}[at].model.sharedModel.setSource(code)",
            [cell, code],
        )

    def run_all(self, timeout: float = 600) -> None:
        """Run all cells and wait for them; fail if one failed."""
        assert self.page.evaluate(RUN_ALL, timeout * 1000) == "ran", f"the cells ran longer than {timeout} s"
        self.wait_idle()
        assert self.failures() == []

    def start_cell(self, cell: int) -> None:
        """Start one cell."""
        self.page.evaluate("cell => { window.jupyterapp.shell.currentWidget.content.activeCellIndex = cell; }", cell)
        self.run("notebook:run-cell")

    def run_cell(self, cell: int, timeout: float = 300) -> None:
        """Run one cell and wait until it has finished."""
        before = self.page.evaluate(COUNT, cell)
        self.start_cell(cell)
        ran = f"([cell, before]) => {{ const now = ({COUNT})(cell); return now !== null && now !== before; }}"
        self.page.wait_for_function(ran, arg=[cell, before], timeout=timeout * 1000)
        self.wait_idle(timeout)

    def code_cells(self) -> list[tuple[int, str]]:
        """The notebook's code cells: their positions and sources."""
        sources = f"() => {CELLS}.map(cell => [cell.model.type, cell.model.sharedModel.getSource()])"
        cells = self.page.evaluate(sources)
        return [(at, source) for at, (kind, source) in enumerate(cells) if kind == "code"]

    def failures(self) -> list[str]:
        """The errors of failed cells."""
        found: list[str] = self.page.evaluate(ERRORS)
        return found

    def heights(self) -> Heights:
        """The current heights of the open notebook."""
        return Heights(*self.page.evaluate(HEIGHTS))

    def scroll_through(self) -> None:
        """Scroll the notebook to its end, one page at a time so that every cell is drawn, and back to the top."""
        top, heights = 0.0, self.heights()
        while top < heights.scroll:
            self._scroll_to(top)
            top, heights = top + heights.page / 2, self.heights()
        self._scroll_to(0)

    def _scroll_to(self, top: float) -> None:
        """Scroll, and wait until the new position is drawn."""
        self.page.evaluate(SCROLLED, top)
        for _ in range(3):
            self.page.evaluate("() => new Promise(requestAnimationFrame)")

    def restart(self) -> None:
        """Restart the kernel and wait until it is ready."""
        self.page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.restartKernel()")
        self.wait_idle()

    def theme(self, name: str) -> None:
        """Change JupyterLab's theme and wait until it is applied."""
        self.page.evaluate("theme => window.jupyterapp.commands.execute('apputils:change-theme', {theme})", name)
        self.page.locator(f"body[data-jp-theme-name='{name}']").wait_for(state="attached")
        self.page.locator("#jupyterlab-splash").wait_for(state="detached")

    def save(self) -> None:
        """Save the notebook, outputs included, and wait until it is on disk."""
        self.page.evaluate("async () => { await window.jupyterapp.commands.execute('docmanager:save'); }")

    def outputs(self) -> Locator:
        """The output areas of the cells."""
        return self.page.locator(".jp-OutputArea-output")
