"""Writes the pages of the Python API: every public name is on one of them.

Names are grouped by purpose. A public name without a group is on the last page, so that none is ever missing.
Signatures and texts come from the code, by autodoc.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_origin

from generated import literal, title, write_pages
from sphinx.addnodes import desc_signature
from sphinx.util.nodes import make_refnode

from streamstate.errors import StreamStateError

if TYPE_CHECKING:
    from docutils.nodes import Element, TextElement
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

FOLDER = Path("reference") / "api"
_CORE, _READING, _VIEWS = "streamstate", "streamstate.state_inspect", "streamstate.widgets"
_REPORTS, _SHEDDING, _SHARING = "streamstate.reports", "streamstate.shedding", "streamstate.sharing"
_ERRORS = "streamstate.errors"

# Ancestors whose members are not ours to explain.
_ANCESTORS = "DataFrame, object, BaseException, Exception, tuple, dict, Protocol"

# The modules before a class or its member, ``streamstate.state_inspect.history.`` before ``History.watch``.
_MODULES = re.compile(r"^([a-z_]+\.)+(?=[A-Z])")

# What the parts of the library call among each other; its types are not public, and nobody needs it to read a store.
_BETWEEN_PARTS = {"recorded", "intervals"}


@dataclass(frozen=True)
class Page:
    """Some public names that are looked up together."""

    title: str
    text: str
    names: tuple[str, ...]


PAGES = {
    "functions": Page(
        "Functions",
        "Sessions, starting queries, first checkpoints, input that is not kept, finding checkpoints, and pipelines.",
        (
            *("session", "start", "checkpoints", "bootstrap", "record", "recorded", "pipeline_flow"),
            f"{_CORE}.operations.supervision.supervise.supervise",
            f"{_CORE}.operations.drill.drill",
        ),
    ),
    "checkpoint": Page(
        "Checkpoint",
        "A query's checkpoint, which Spark owns: examine, capture, fork, check, migrate and rescale it.",
        ("Checkpoint",),
    ),
    "fork": Page("Fork", "A checkpoint made from another one, and what runs on it.", ("Fork", "Edit")),
    "running": Page(
        "Running query",
        "A query that this process started or follows.",
        ("Running", "BackOff", "Standby", "StandbyStatus", "HandoverReport"),
    ),
    "policies": Page(
        "Load policies",
        "What must hold for a running query, and what would have been done for it.",
        ("Policy", "DryRun"),
    ),
    "store": Page(
        "Store", "Snapshots of queries. From here on, neither Spark nor Java is needed.", ("open_store", "Store")
    ),
    "history": Page("History", "All epochs of one query.", ("History",)),
    "snapshot": Page(
        "Snapshot and state table", "The state of every operator at one epoch.", ("Snapshot", "StateTable")
    ),
    "diff": Page("Differences", "What changed between two epochs, and why.", ("Diff", "DiffSummary")),
    "cuts": Page("Cuts", "Snapshots of several queries that reflect the same input.", ("cut", "Cut")),
    "variables": Page(
        "Shared variables",
        "Values that operators share with each other and with the notebook, a version per epoch.",
        ("shared", "SharedVariable", "shared_column"),
    ),
    "shedding": Page(
        "Shedding",
        "Rows that are dropped by a level, and estimates from those that are kept. All but ``shed`` are in"
        " ``streamstate.shedding``.",
        ("shed", "level_for", "declare_level", "level_variable", "weighted_sum", "weighted_count", "weighted_mean"),
    ),
    "sharing": Page(
        "Sharing with others",
        "Contracts, the server, and what others share. All but ``open_share``, ``shared_frame`` and ``sql`` are in"
        " ``streamstate.sharing``.",
        (
            *("ContractList", "Contract", "Terms", "GrantedTable", "Suggestion", "PartialTerms"),
            *("serve", "ShareServer", "Limits", "open_share", "SharedStore", "AgreedTerms", "Following", "Freshness"),
            *("shared_frame", "SharedFrame", "sql"),
        ),
    ),
    "reports": Page(
        "Reports and results",
        "What the methods return. Import these classes for annotations from ``streamstate.reports``.",
        (
            *("Capture", "CaptureStatus", "CaptureLag", "CaptureReport", "DoctorReport", "StoreState", "TableReading"),
            *("CaptureMetrics", "CheckReport", "Checkpoints", "Fleet", "FleetReport"),
            f"{_CORE}.operations.checkup.report.CheckupFinding",
            f"{_CORE}.operations.code_check.report.Finding",
            *("StepReport", "EpochRun", "Replay", "DebugSession", "Comparison", "BranchDivergence"),
            *("Audit", "AuditedReplay", f"{_CORE}.replay.audit.report.AuditDivergence", "Suspect"),
            *("ProposedMapping", "Proposal", "WrittenCheckpoint", "Promotion", "RescaleReport", "RescaleAdvice"),
            *("Supervised", "DrillReport", "AvailabilityReport", f"{_CORE}.operations.drill.report.Owner"),
            *("QueryStatus", "StreamStateWarning"),
            *("Result", "Advice", "Why", "Late", "Load", "Forecast", "StaleKeys", "Watch", "WatchEvent", "Tail"),
            *("RetentionReport", "CompactedTable", "ExportReport"),
            *("RecordedFrame", "Recorder", f"{_CORE}.variables.notifications.Change", "Subscription"),
        ),
    ),
}


def setup(app: Sphinx) -> dict[str, bool]:
    """What Sphinx calls first."""
    app.connect("builder-inited", generate)
    app.connect("missing-reference", find_by_last_name)
    app.connect("autodoc-skip-member", skip_what_is_not_ours)
    app.connect("autodoc-process-signature", hide_own_constructors)
    app.connect("autodoc-process-bases", show_public_bases)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def public_names() -> dict[str, str]:
    """Every public name and the module that it is documented as a part of."""
    names: dict[str, str] = {}
    for module in (_VIEWS, _READING, _SHARING, _REPORTS, _SHEDDING, _CORE):
        names |= dict.fromkeys(importlib.import_module(module).__all__, module)
    return names


def generate(app: Sphinx) -> None:
    """Write the pages."""
    known = public_names()
    views = [name for name, module in known.items() if module == _VIEWS]
    pages = PAGES | {"views": Page("Views", "What a notebook or a served page shows, as objects.", tuple(views))}
    placed = {name for page in pages.values() for name in page.names}
    # The errors have a page of their own.
    rest = tuple(sorted(name for name in known if name not in placed and not _is_error(known[name], name)))
    written = {"errors": "\n".join(_errors())}
    for slug, page in (pages | {"others": Page("Other names", "What else is public.", rest)}).items():
        names = [name for name in page.names if name in known or "." in name]
        if names:
            written[slug] = "\n".join(_page(page, names, known))
    write_pages(Path(app.srcdir) / FOLDER, written)


def _errors() -> Iterator[str]:
    """The page of the errors: their tree, then each."""
    module = importlib.import_module(_ERRORS)
    drawn = importlib.import_module(f"{_CORE}.errors").__doc__ or ""
    text, _, tree = inspect.cleandoc(drawn).partition(f"\n{StreamStateError.__name__}\n")
    yield title("Errors", "=")
    yield text.partition("\n")[2].strip() + "\n"
    yield literal(f"{StreamStateError.__name__}\n{tree}")
    yield f".. currentmodule:: {_ERRORS}\n"
    for name, value in vars(module).items():
        if inspect.isclass(value) and issubclass(value, StreamStateError):
            home = _CORE if value is StreamStateError else _ERRORS
            yield f".. autoexception:: {home}.{name}\n   :show-inheritance:\n"


def _page(page: Page, names: list[str], known: dict[str, str]) -> Iterator[str]:
    yield title(page.title, "=")
    yield page.text + "\n"
    for name in names:
        module = known.get(name) or name.rpartition(".")[0]
        last = name.rpartition(".")[2]
        yield from _entry(module, last)


def _entry(module: str, name: str) -> Iterator[str]:
    """One name, as what it is."""
    value = getattr(importlib.import_module(module), name)
    yield f".. currentmodule:: {module}\n"
    if inspect.isclass(value):
        yield from _class(module, name, value)
    elif callable(value):
        yield f".. autofunction:: {module}.{name}\n"
    else:
        yield f".. autodata:: {module}.{name}\n"


def _class(module: str, name: str, described: type) -> Iterator[str]:
    """A class with its members, but those of a public class that it is made from: they are explained there."""
    public = vars(importlib.import_module(module)).get("__all__", [])
    above = [one.__name__ for one in described.__mro__[1:] if one.__name__ in public]
    yield f".. autoclass:: {module}.{name}\n   :members:\n   :special-members: __getitem__, __call__"
    if above:
        yield "   :show-inheritance:"
    yield f"   :inherited-members: {', '.join([_ANCESTORS, *above])}\n"


def _is_error(module: str, name: str) -> bool:
    value = getattr(importlib.import_module(module), name)
    return inspect.isclass(value) and issubclass(value, Exception)


def skip_what_is_not_ours(
    _app: Sphinx,
    _what: str,
    name: str,
    value: Any,
    _skip: bool,  # noqa: FBT001 (Sphinx calls it)
    _options: Any,
) -> bool | None:
    """Leave out what a class has from another package, and what the library's parts alone call."""
    function = getattr(value, "fget", None) or getattr(value, "func", None) or value
    home = getattr(function, "__module__", None)
    foreign = callable(function) and isinstance(home, str) and not home.startswith("streamstate")
    return True if foreign or name in _BETWEEN_PARTS else None


def hide_own_constructors(
    _app: Sphinx, what: str, name: str, _value: Any, _options: Any, signature: str | None, returns: str | None
) -> tuple[str, str | None] | None:
    """Show no constructor's arguments where the library makes the object and users never do; views they do make."""
    made_by_us = what == "class" and signature is not None and not name.startswith(f"{_VIEWS}.")
    return ("", returns) if made_by_us else None


def show_public_bases(_app: Sphinx, _name: str, _value: type, _options: Any, bases: list[Any]) -> None:
    """Name the classes that one can look up, without what they are parametrised with, which is not public."""
    known = public_names().keys() | vars(importlib.import_module(_ERRORS)).keys()
    origins = [get_origin(base) or base for base in bases]
    bases[:] = [one for one in origins if one.__name__ in known or one.__module__ == "builtins"]


def find_by_last_name(app: Sphinx, _env: BuildEnvironment, node: Element, content: TextElement) -> Element | None:
    """Where a name leads that Sphinx does not find as it is written.

    The code imports types from where they are defined; here they are found under their public names. Types in
    signatures that are not ours, or not public, stay plain text. A name in a text that leads nowhere stays an error.
    """
    if node.get("refdomain") != "py":
        return None
    name = _MODULES.sub("", str(node.get("reftarget", "")))
    objects = app.env.domains["py"].data["objects"]
    found = [one for one in objects if one.endswith(f".{name}") and not objects[one].aliased]
    if len(found) == 1:  # a name that several objects have leads nowhere, as one that none has
        where = objects[found[0]]
        return make_refnode(app.builder, node["refdoc"], where.docname, where.node_id, content, found[0])
    return content if _in_signature(node) else None


def _in_signature(node: Element) -> bool:
    parent = node.parent
    while parent is not None and not isinstance(parent, desc_signature):
        parent = parent.parent
    return parent is not None
