"""The documentation: it builds without a warning, leaves nothing public out, needs no other host, and is true."""

from __future__ import annotations

import importlib
import inspect
import json
import re
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from docs_site import DOCS, ROOT, Site, build

import streamstate
from streamstate.extension import MAGICS
from streamstate.magics.arguments import MagicParser
from streamstate.magics.settings import StreamState
from streamstate.snapshots import errors
from streamstate.snapshots.layout import MANIFEST, QUERIES
from streamstate.tutorials import flights

pytestmark = pytest.mark.slow

TABLES = (DOCS / "reference" / "tables.md").read_text(encoding="utf-8")
QUICKSTART = (DOCS / "start" / "quickstart.md").read_text(encoding="utf-8")

# What the library's parts call among each other.
BETWEEN_PARTS = {"advance", "change_log", "entries", "interval_table", "interval_table_of"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """The site, built from nothing."""
    folder = tmp_path_factory.mktemp("docs")
    done = build(folder)
    assert (done.returncode, done.stderr) == (0, "")
    return Site(folder / "site")


# What is on it.


def public() -> Iterator[str]:
    """Every public name, as its entry is called."""
    home = dict.fromkeys(importlib.import_module("streamstate.widgets").__all__, "streamstate.widgets")
    home |= dict.fromkeys(importlib.import_module("streamstate.state_inspect").__all__, "streamstate.state_inspect")
    home |= dict.fromkeys(streamstate.__all__, "streamstate")
    yield from (f"{module}.{name}" for name, module in home.items())


def test_every_public_name_has_an_entry(site: Site) -> None:
    """What ``__all__`` names, of the library, of reading and of the views, is explained in the API reference."""
    assert set(public()) - site.ids("reference/api") == set()


def test_every_public_error_has_an_entry(site: Site) -> None:
    """Whatever a caller may want to catch."""
    assert {f"{errors.__name__}.{name}" for name in errors.__all__} - {
        f"{errors.__name__}.StreamStateError"
    } <= site.ids("reference/api")


@pytest.mark.parametrize("name", ["Store", "History", "Snapshot", "StateTable", "Diff", "Result", "Cut", "Capture"])
def test_every_method_has_an_entry(site: Site, name: str) -> None:
    """Methods and properties of the classes that one works with, inherited ones among them."""
    described = getattr(streamstate, name)
    members = {one for one in dir(described) if not one.startswith("_")} - BETWEEN_PARTS
    assert members, "a class without members is not what this test is about"
    assert {f"streamstate.{name}.{one}" for one in members} - site.ids("reference/api") == set()


def options(parser: MagicParser, program: str) -> Iterator[str]:
    """The anchors of a parser's options and its verbs', but --help, which the usage shows."""
    for argument in parser.arguments:
        yield from (
            f"cmdoption-{program}-{flag.lstrip('-')}" for flag in argument.flags if flag not in ("--help", "-h")
        )
    for name, verb in parser.verbs.items():
        yield from options(verb, f"{program}-{name}")


@pytest.mark.parametrize("magic", MAGICS, ids=lambda magic: f"{magic.name}-{magic.kind}")
def test_every_option_of_a_magic_has_an_entry(site: Site, magic: streamstate.magics.magic.Magic) -> None:
    """Options of the magic and of each of its verbs, on a page of its own."""
    page = f"{magic.name}-{magic.kind}"
    anchors = site.pages[site.folder / "reference" / "magics" / f"{page}.html"].ids
    wanted = set(options(magic.parser, page))
    assert wanted
    assert wanted - anchors == set()


def test_every_argument_that_is_no_option_is_shown(site: Site) -> None:
    """What a magic knows by its place stands on its page, too."""
    for magic in MAGICS:
        shown = site.text(f"reference/magics/{magic.name}-{magic.kind}.html")
        for parser in [magic.parser, *magic.parser.verbs.values()]:
            for one in parser._get_positional_actions():
                if one.metavar != "VERB":
                    assert str(one.metavar or one.dest.upper()).partition("[")[0] in shown


def test_every_setting_has_an_entry(site: Site) -> None:
    """What ``%config StreamState`` sets."""
    wanted = {
        f"cmdoption-config-StreamState-arg-StreamState.{name}" for name in StreamState.class_own_traits(config=True)
    }
    assert wanted - site.ids("reference/magics") == set()


def test_every_tutorial_is_listed(site: Site) -> None:
    """A notebook that is added is on the page of the tutorials."""
    shown = site.text("start/tutorials.html")
    notebooks = [one.name for one in (ROOT / "tutorials").glob("*.ipynb")]
    assert notebooks
    assert all(name in shown for name in notebooks)


# Where it leads, and what it needs.


def test_every_link_within_the_site_leads_somewhere(site: Site) -> None:
    """To a file that is there, and where it names a place in it, to that place."""
    assert list(site.dead_links()) == []


def test_no_page_needs_another_host(site: Site) -> None:
    """No script, style, picture or font is fetched from elsewhere: the site is read offline."""
    fetched = {f"{path.name}: {one}" for path, page in site.pages.items() for one in page.resources if "//" in one}
    assert fetched == set()


def test_no_style_needs_another_host(site: Site) -> None:
    """Style sheets import nothing and take no font from elsewhere."""
    sheets = list(site.folder.rglob("*.css"))
    assert sheets
    taken = {
        f"{sheet.name}: {address}"
        for sheet in sheets
        for address in re.findall(r"(?:url\(\s*|@import\s+)[\"']?([^\"')\s]+)", sheet.read_text(encoding="utf-8"))
        if address.startswith(("http:", "https:", "//"))
    }
    assert taken == set()


# Whether it is true.


@pytest.mark.parametrize(("heading", "schema"), [("## `_queries`", QUERIES), ("## The manifest", MANIFEST)])
def test_the_columns_on_disk_are_those_that_the_code_writes(heading: str, schema: pa.Schema) -> None:
    """Each column in its order, with its type."""
    types = {"string": "string", "long": "int64", "timestamp": "timestamp[us, tz=UTC]"}
    types["map: string to long"] = "map<string, int64>"
    section = TABLES.partition(heading)[2].partition("\n## ")[0]
    said = [(name, types[kind]) for name, kind in re.findall(r"^\| `(\w+)` \| ([^|]+?) \|", section, re.MULTILINE)]
    assert said == [(one.name, str(one.type)) for one in schema]


def test_the_plain_sql_is_the_readmes() -> None:
    """It is tested there, with other readers."""
    found = [
        re.search(r"```sql\n(.*?)```", text, re.DOTALL) for text in (TABLES, (ROOT / "README.md").read_text("utf-8"))
    ]
    assert found[0] is not None
    assert found[1] is not None
    assert found[0].group(1) == found[1].group(1)


def test_the_quickstart_is_the_notebook() -> None:
    """The same cells in the same order; the notebook is run by other tests."""
    cells = json.loads((ROOT / "tutorials" / "00_quickstart.ipynb").read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]).strip() for cell in cells if cell["cell_type"] == "code"]
    assert [block.strip() for block in re.findall(r"```(?:python|sql)\n(.*?)```", QUICKSTART, re.DOTALL)] == code


def life_of(folder: Path, carrier: str, origin: str, epochs: int) -> Iterator[tuple[str, ...]]:
    """Count, sum, count of delays and maximum after each file, from the flights themselves, as the page prints them."""
    files = sorted(folder.glob("*.parquet"))[:epochs]
    read = pd.DataFrame()
    for file in files:
        frame = pd.read_parquet(file)
        chosen = frame[(frame.carrier == carrier) & (frame.origin == origin)]
        read = pd.concat([read, chosen])
        delays = read.dep_delay
        yield tuple(str(int(one)) for one in (len(read), delays.sum(), delays.count(), delays.max()))


def test_the_quickstart_finds_the_key_that_makes_the_average_wrong(tmp_path: Path) -> None:
    """Its figures are those of the flights, and it names the key."""
    data = flights.prepare(str(tmp_path), days_per_file=3, last=date(2013, 1, 15))
    rows = re.findall(r"^\| \**(\d+)\** \| \**put\** \| (.+) \| \**input\** \|$", QUICKSTART, re.MULTILINE)
    said = [tuple(row.replace("*", "").split(" | ")) for _, row in rows]
    assert [int(epoch) for epoch, _ in rows] == [0, 1, 2, 3, 4]
    assert said == list(life_of(Path(data) / "flights", "HA", "JFK", 5))
    assert "The key that makes the average wrong is **`carrier` `HA`, `origin`\n`JFK`**" in QUICKSTART


def test_the_public_names_are_read_from_the_code() -> None:
    """The check above is about something: names of all three kinds, with docstrings."""
    kinds = {name.rpartition(".")[0] for name in public()}
    assert kinds == {"streamstate", "streamstate.state_inspect", "streamstate.widgets"}
    assert all(
        inspect.getdoc(getattr(importlib.import_module(one.rpartition(".")[0]), one.rpartition(".")[2]))
        for one in public()
    )
