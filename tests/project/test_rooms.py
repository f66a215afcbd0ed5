"""Imports between sub-packages ("rooms") lead one way only, without circles."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from scripts.house import DRAWING, House, drawing
from scripts.typecheck import folders

SOURCES = {
    "kernel_ext/__init__.py": "",
    "kernel_ext/errors.py": "",
    "widgets/__init__.py": "",
    "widgets/view.py": "from streamstate.state_inspect import history",
    "state_inspect/__init__.py": "from streamstate.state_inspect.history import History",
    "state_inspect/history.py": "from streamstate.errors import StreamStateError",
    "snapshots/__init__.py": "",
    "snapshots/capture.py": "",
    "tutorials/__init__.py": "import streamstate.widgets.view",
}


@pytest.fixture(scope="module")
def package() -> House:
    """The real package."""
    return House.read(folders())


def house(root: Path, changed: Mapping[str, str]) -> House:
    """Write a small package, in which the given sources are changed."""
    for name, source in {**SOURCES, **changed}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source, encoding="utf-8")
    rooms = ("widgets", "state_inspect", "snapshots", "tutorials")
    return House.read({"streamstate": root / "kernel_ext"} | {f"streamstate.{room}": root / room for room in rooms})


def uphill(root: Path, **changed: str) -> list[tuple[str, str]]:
    """The uphill imports of a small package. Changed sources are named ROOM__MODULE."""
    found = house(root, {f"{name.replace('__', '/')}.py": source for name, source in changed.items()}).uphill()
    return [(line.module, line.imported) for line in found]


def test_imports_down_the_rooms_are_allowed(tmp_path: Path) -> None:
    """This includes imports by the tutorials, and of errors by all rooms."""
    assert uphill(tmp_path) == []


@pytest.mark.parametrize(
    "source",
    [
        "from streamstate.widgets.view import View",
        "from streamstate.widgets import view",
        "import streamstate.widgets.view as view",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from streamstate.widgets.view import View",
        "def show():\n    from streamstate.widgets.view import View",
    ],
)
def test_an_import_uphill_is_found(tmp_path: Path, source: str) -> None:
    """Imports at the top, for types only, and inside a function are found."""
    assert uphill(tmp_path, snapshots__capture=source) == [
        ("streamstate.snapshots.capture", "streamstate.widgets.view")
    ]


def test_only_the_version_of_the_top_package_may_be_used(tmp_path: Path) -> None:
    """All rooms may use ``__version__``, but no other name of the top package."""
    assert uphill(tmp_path, snapshots__capture="import streamstate\nstreamstate.__version__") == []
    assert uphill(tmp_path, snapshots__capture="from streamstate import __version__") == []
    assert uphill(tmp_path, snapshots__capture="import streamstate\nstreamstate.fork()") == [
        ("streamstate.snapshots.capture", "streamstate")
    ]
    assert uphill(tmp_path, snapshots__capture="from streamstate import fork") == [
        ("streamstate.snapshots.capture", "streamstate")
    ]


def test_nothing_imports_the_tutorials(tmp_path: Path) -> None:
    """An import by the highest room is found."""
    assert uphill(tmp_path, kernel_ext__extension="from streamstate.tutorials import flights") == [
        ("streamstate.extension", "streamstate.tutorials")
    ]


def test_a_circle_is_found(tmp_path: Path) -> None:
    """The shortest circle is listed by module, including imports for types only."""
    changed = {
        "snapshots/a.py": "import streamstate.snapshots.b",
        "snapshots/b.py": "def later():\n    from streamstate.snapshots import c",
        "snapshots/c.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import streamstate.snapshots.a",
    }
    names = [f"streamstate.snapshots.{name}" for name in "abc"]
    found = house(tmp_path, changed)
    assert found.circles() == [names]
    assert [line.rpartition(": ")[2] for line in found.problems()][1:] == [
        f"{module} imports {imported}" for module, imported in zip(names, [*names[1:], names[0]], strict=True)
    ]


def test_importing_a_module_does_not_count_as_importing_its_package(tmp_path: Path) -> None:
    """A package may import from modules that import each other. Importing a name of the package is a circle."""
    sideways = {"state_inspect/store.py": "from streamstate.state_inspect.history import History"}
    assert house(tmp_path, sideways).circles() == []
    upward = {"state_inspect/history.py": "from streamstate.state_inspect import Store"}
    assert house(tmp_path, upward).circles() == [["streamstate.state_inspect", "streamstate.state_inspect.history"]]


def test_the_imports_of_the_package_lead_one_way(package: House) -> None:
    """There is no uphill import and no circle."""
    assert list(package.problems()) == []


def test_the_drawing_in_the_documentation_is_up_to_date(package: House) -> None:
    """`python -m scripts.house` updates it."""
    assert DRAWING.read_text(encoding="utf-8") == drawing(package)


def test_methods_of_the_nouns_may_load_what_acts_on_them(tmp_path: Path) -> None:
    """Only inside functions: at the top of their modules, the rule holds."""
    below = "def restore():\n    from streamstate.widgets.view import View"
    assert uphill(tmp_path / "inside", state_inspect__snapshot=below) == []
    assert uphill(tmp_path / "top", state_inspect__snapshot="from streamstate.widgets.view import View") != []
