"""The documentation builds without warnings, covers all public names, needs no other host, and matches the code."""

from __future__ import annotations

import importlib
import inspect
import json
import re
import sys
from collections.abc import Iterator, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import synthetic
from docs_site import DOCS, ROOT, Site, built

import streamstate
from streamstate import errors, reports
from streamstate.extension import MAGICS
from streamstate.magics.arguments import MagicParser
from streamstate.magics.notebook_context import StreamState
from streamstate.snapshots.store.layout import MANIFEST, QUERIES
from streamstate.tutorials import flights

pytestmark = [pytest.mark.slow, pytest.mark.notebook]

TABLES = (DOCS / "reference" / "tables.md").read_text(encoding="utf-8")
QUICKSTART = (DOCS / "start" / "quickstart.md").read_text(encoding="utf-8")

# Public methods for internal use.
INTERNAL_METHODS = {"intervals", "recorded"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """The site."""
    return Site(built(tmp_path_factory))


# Coverage.


def public() -> Iterator[str]:
    """All public names, with the modules of their entries."""
    modules = dict.fromkeys(importlib.import_module("streamstate.widgets").__all__, "streamstate.widgets")
    modules |= dict.fromkeys(importlib.import_module("streamstate.state_inspect").__all__, "streamstate.state_inspect")
    modules |= dict.fromkeys(reports.__all__, "streamstate.reports")
    modules |= dict.fromkeys(importlib.import_module("streamstate.shedding").__all__, "streamstate.shedding")
    modules |= dict.fromkeys(streamstate.__all__, "streamstate")
    yield from (f"{module}.{name}" for name, module in modules.items())


def test_every_public_name_has_an_entry(site: Site) -> None:
    """All names in ``__all__`` of the library, of state_inspect and of the widgets are in the API reference."""
    assert set(public()) - site.ids("reference/api") == set()


def test_every_public_error_has_an_entry(site: Site) -> None:
    """All errors are in the API reference."""
    assert {f"{errors.__name__}.{name}" for name in errors.__all__} - {
        f"{errors.__name__}.StreamStateError"
    } <= site.ids("reference/api")


@pytest.mark.parametrize(
    "name", ["Store", "History", "Snapshot", "StateTable", "Diff", "Result", "Cut", "Capture", "Fork"]
)
def test_every_method_has_an_entry(site: Site, name: str) -> None:
    """All public methods and properties of the main classes are in the API reference, including inherited ones."""
    members = {member for member in dir(getattr(reports, name)) if not member.startswith("_")} - INTERNAL_METHODS
    assert members
    assert {f"streamstate.reports.{name}.{member}" for member in members} - site.ids("reference/api") == set()


def extension(name: str) -> Any:
    """Import an extension of the site, from the same path as Sphinx."""
    sys.path.insert(0, str(DOCS / "_ext"))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.pop(0)


def options(parser: MagicParser, program: str) -> Iterator[str]:
    """The anchors of the options of a parser and its verbs, except for --help, which is in the usage."""
    for argument in parser.arguments:
        yield from (
            f"cmdoption-{program}-{flag.lstrip('-')}" for flag in argument.flags if flag not in ("--help", "-h")
        )
    for name, verb in parser.verbs.items():
        yield from options(verb, f"{program}-{name}")


@pytest.mark.parametrize("magic", MAGICS, ids=lambda magic: f"{magic.name}-{magic.kind}")
def test_every_option_of_a_magic_has_an_entry(site: Site, magic: streamstate.magics.magic.Magic) -> None:
    """The magic's page has entries for its options and those of its verbs."""
    page = f"{magic.name}-{magic.kind}"
    anchors = site.pages[site.folder / "reference" / "magics" / f"{page}.html"].ids
    expected = set(options(magic.parser, page))
    assert expected
    assert expected - anchors == set()


def test_every_option_of_a_command_has_an_entry(site: Site) -> None:
    """Each command's page has entries for its options, and its examples."""
    reference = extension("commands_reference")
    for name, parser in reference.parsers().items():
        page = site.folder / "reference" / "commands" / f"streamstate-{name}.html"
        known = {name: parser, **{f"{name}-{verb}": own for verb, own in reference.verbs(parser).items()}}
        flags = [(of, flag) for of, each in known.items() for action in each._actions for flag in action.option_strings]
        expected = {f"cmdoption-streamstate-{of}-{flag[2:]}" for of, flag in flags if flag not in ("--help", "-h")}
        assert expected
        assert expected - site.pages[page].ids == set()
        text = site.text(f"reference/commands/streamstate-{name}.html")
        assert parser.epilog.splitlines()[1].strip() in text


def test_every_positional_argument_is_shown(site: Site) -> None:
    """The magic's page has its positional arguments."""
    for magic in MAGICS:
        text = site.text(f"reference/magics/{magic.name}-{magic.kind}.html")
        for parser in [magic.parser, *magic.parser.verbs.values()]:
            for action in parser._get_positional_actions():
                if action.metavar != "VERB":
                    assert str(action.metavar or action.dest.upper()).partition("[")[0] in text


def test_every_setting_has_an_entry(site: Site) -> None:
    """All settings of ``%config StreamState`` are in the reference."""
    expected = {
        f"cmdoption-config-StreamState-arg-StreamState.{name}" for name in StreamState.class_own_traits(config=True)
    }
    assert expected - site.ids("reference/magics") == set()


def test_every_tutorial_has_a_page(site: Site) -> None:
    """Every notebook is listed, and its cells are on a page."""
    index = site.text("tutorials/index.html")
    notebooks = [notebook.stem for notebook in (ROOT / "tutorials").glob("*.ipynb")]
    assert notebooks
    for name in notebooks:
        assert f'href="{name}.html"' in index
        assert "cell_input" in site.text(f"tutorials/{name}.html")


def notebook(*sources: str, outputs: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    """A notebook with a title and code cells."""
    code = [{"cell_type": "code", "source": source, "outputs": list(outputs)} for source in sources]
    return {"cells": [{"cell_type": "markdown", "source": "# Title"}, *code]}


def test_a_tutorial_shows_the_outputs_of_a_run_of_the_same_code(tmp_path: Path) -> None:
    """Only outputs that need no kernel are shown. Without such a run, the page says that outputs are missing."""
    tutorial_list = extension("tutorial_list")
    player = "<script data-no-kernel>play()</script>"
    html = f"<b>1</b><script>live()</script>{player}"
    output = {"output_type": "display_data", "data": {"text/html": html, "live": {}}}
    run = tmp_path / "run.ipynb"
    run.write_text(json.dumps(notebook("1", outputs=[output])), encoding="utf-8")
    cells = tutorial_list.with_outputs(notebook("1"), run)["cells"]
    assert cells[1]["outputs"] == [{"output_type": "display_data", "data": {"text/html": f"<b>1</b>{player}"}}]
    for cells in (
        tutorial_list.with_outputs(notebook("2"), run)["cells"],
        tutorial_list.with_outputs(notebook("1"), tmp_path / "none.ipynb")["cells"],
    ):
        assert "make docs" in cells[0]["source"]
        assert cells[1]["outputs"] == []


def test_a_notebook_that_was_run_and_saved_is_shown_as_it_was(tmp_path: Path) -> None:
    """Without what needs a kernel: Sphinx warns about forms of output that it does not know."""
    live = {"text/html": "<b>1</b>", "text/plain": "1", "application/vnd.holoviews_exec.v0+json": ""}
    saved = notebook("1", outputs=[{"output_type": "display_data", "data": live, "metadata": {}}])
    cells = extension("tutorial_list").with_outputs(saved, tmp_path / "none.ipynb")["cells"]
    (output,) = cells[1]["outputs"]
    assert output["data"] == {"text/html": "<b>1</b>", "text/plain": "1"}
    assert "make docs" not in cells[0]["source"]


@pytest.mark.parametrize("kind", ["application/vnd.jupyter.widget-view+json", "application/javascript"])
def test_an_output_that_only_a_kernel_can_show_is_left_out(tmp_path: Path, kind: str) -> None:
    """As JupyterLab saves a widget; what a cell printed, and its error, stay."""
    printed = {"output_type": "stream", "name": "stdout", "text": "1"}
    failed = {"output_type": "error", "ename": "KeyboardInterrupt", "evalue": "", "traceback": []}
    saved = notebook(
        "1", outputs=[printed, {"output_type": "display_data", "data": {kind: {}}, "metadata": {}}, failed]
    )
    cells = extension("tutorial_list").with_outputs(saved, tmp_path / "none.ipynb")["cells"]
    assert cells[1]["outputs"] == [printed, failed]


# Links and resources.


def test_links_within_the_site_are_valid(site: Site) -> None:
    """Their files and anchors exist."""
    assert list(site.dead_links()) == []


def test_no_page_needs_another_host(site: Site) -> None:
    """The site can be read offline: scripts, styles, images and fonts are local."""
    remote = {f"{path.name}: {url}" for path, page in site.pages.items() for url in page.resources if "//" in url}
    assert remote == set()


def test_no_style_sheet_needs_another_host(site: Site) -> None:
    """Imports and fonts of style sheets are local."""
    sheets = list(site.folder.rglob("*.css"))
    assert sheets
    remote = {
        f"{sheet.name}: {address}"
        for sheet in sheets
        for address in re.findall(r"(?:url\(\s*|@import\s+)[\"']?([^\"')\s]+)", sheet.read_text(encoding="utf-8"))
        if address.startswith(("http:", "https:", "//"))
    }
    assert remote == set()


# Agreement with the code.


@pytest.mark.parametrize(("heading", "schema"), [("## `_queries`", QUERIES), ("## The manifest", MANIFEST)])
def test_the_documented_columns_are_those_on_disk(heading: str, schema: pa.Schema) -> None:
    """Names, types and order of the columns are equal."""
    types = {"string": "string", "long": "int64", "timestamp": "timestamp[us, tz=UTC]"}
    types["map: string to long"] = "map<string, int64>"
    section = TABLES.partition(heading)[2].partition("\n## ")[0]
    documented = [
        (name, types[kind]) for name, kind in re.findall(r"^\| `(\w+)` \| ([^|]+?) \|", section, re.MULTILINE)
    ]
    assert documented == [(field.name, str(field.type)) for field in schema]


def test_the_sql_for_other_readers_is_that_of_the_readme() -> None:
    """Both have the same statement."""
    statements = [
        re.search(r"```sql\n(.*?)```", text, re.DOTALL) for text in (TABLES, (ROOT / "README.md").read_text("utf-8"))
    ]
    assert statements[0] is not None
    assert statements[1] is not None
    assert statements[0].group(1) == statements[1].group(1)


def test_the_quickstart_is_the_notebook() -> None:
    """The page has the code cells of the notebook, in the same order, but for its exercises."""
    cells = json.loads((ROOT / "tutorials" / "00_quickstart.ipynb").read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]).strip() for cell in cells if cell["cell_type"] == "code"]
    code = [source for source in code if "P00." not in source]
    assert [block.strip() for block in re.findall(r"```(?:python|sql)\n(.*?)```", QUICKSTART, re.DOTALL)] == code


def aggregates(folder: Path, carrier: str, origin: str, epochs: int) -> Iterator[tuple[str, ...]]:
    """A key's departures, average delay and maximum delay after each file, computed from the flights."""
    files = sorted(folder.glob("*.parquet"))[:epochs]
    rows = pd.DataFrame()
    for file in files:
        frame = pd.read_parquet(file)
        rows = pd.concat([rows, frame[(frame.carrier == carrier) & (frame.origin == origin)]])
        delays = rows.dep_delay
        yield str(len(rows)), f"{delays.mean():.1f}", str(int(delays.max()))


def test_the_quickstart_has_the_figures_of_the_flights(tmp_path: Path) -> None:
    """The values of the key equal those computed from the flights, and the page names the key."""
    data = flights.prepare(str(tmp_path), days_per_file=3, last=date(2013, 1, 15))
    rows = re.findall(r"^\| \**(\d+)\** \| \**put\** \| (.+) \| \**input\** \|$", QUICKSTART, re.MULTILINE)
    shown = [tuple(row.replace("*", "").split(" | ")) for _, row in rows]
    assert [int(epoch) for epoch, _ in rows] == [0, 1, 2, 3, 4]
    assert shown == list(aggregates(Path(data) / "flights", "HA", "JFK", 5))
    assert "The key that makes the average wrong is **`carrier` `HA`, `origin`\n`JFK`**" in QUICKSTART


def test_retention_removes_a_deleted_key_from_the_files(tmp_path: Path) -> None:
    """As the guide on data protection says, no file has the key once the epochs before its deletion are dropped."""

    def files_with_key() -> list[Path]:
        return [path for path in tmp_path.rglob("*.parquet") if "somebody" in str(pq.read_table(path).to_pylist())]

    synthetic.write(tmp_path, [{"somebody": 1, "else": 1}, {"somebody": 2, "else": 1}, {"else": 2}])
    assert files_with_key()
    streamstate.open_store(tmp_path)["q"].retain(last=1, grace=timedelta(0))
    assert files_with_key() == []


def test_public_names_have_docstrings() -> None:
    """The checks above cover names of all public modules."""
    modules = {name.rpartition(".")[0] for name in public()}
    assert modules <= {f"streamstate{part}" for part in ("", ".reports", ".shedding", ".state_inspect", ".widgets")}
    assert all(
        inspect.getdoc(getattr(importlib.import_module(name.rpartition(".")[0]), name.rpartition(".")[2]))
        for name in public()
    )
