"""Default names of queries, made from the paths of their checkpoints.

A pipeline (``pyspark.pipelines``) keeps the checkpoints of a flow in
``<storage>/_checkpoints/<catalog>/<schema>/<table>/<flow>/<version>``. A full refresh starts the next version, with a
new query id, and leaves the old one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamstate.snapshots.store.names import distinct, is_number, name_from

if TYPE_CHECKING:
    from streamstate.snapshots.checkpoint.filesystem import ReadableFiles

_OF_PIPELINE = "_checkpoints"
_LEAST = 2
"""The folders of a table and of a flow; Spark puts those of the catalog and the schema above them."""


@dataclass(frozen=True)
class FlowVersion:
    """A version of a pipeline's flow, as the path of its checkpoint names it."""

    folder: str
    """The folder of the flow, which holds its versions."""
    version: int
    table: str
    flow: str

    @property
    def name(self) -> str:
        """The table's name, and the flow's if it is another; later versions end in ``_v1``, ``_v2``, and so on."""
        own = self.table if self.flow == self.table else f"{self.table}_{self.flow}"
        return f"{own}_v{self.version}" if self.version else own


def flow_version(path: str) -> FlowVersion | None:
    """Return the flow that a checkpoint belongs to; None if it is not in the folders of a pipeline."""
    folder, _, version = path.rpartition("/")
    _, found, below = folder.rpartition(f"/{_OF_PIPELINE}/")
    names = below.split("/")
    if not found or not is_number(version) or len(names) < _LEAST:
        return None
    return FlowVersion(folder, int(version), *names[-_LEAST:])


def versions_in(files: ReadableFiles, folder: str) -> list[int]:
    """Return the versions in the folder of a flow, ascending."""
    return sorted(int(name) for name, is_folder in files.entries(folder).items() if is_folder and is_number(name))


def default_names(path: str, root: str = "") -> Iterator[str]:
    """Yield names for the query of a checkpoint below a root, the shortest first; each has one more folder in it."""
    flow = flow_version(path)
    above = flow.folder.rpartition(f"/{flow.table}/")[0] if flow else path.rpartition("/")[0]
    below = above.removeprefix(root) if above.startswith(root) else ""
    folders = [folder for folder in below.rpartition("://")[2].split("/") if folder not in ("", _OF_PIPELINE)]
    text = flow.name if flow else path.rpartition("/")[2]
    yield (name := name_from(text))
    while folders:
        text = f"{folders.pop()}_{text}"
        longer = name_from(text)
        if not longer.endswith(name):  # too long: the end was cut off
            return
        yield longer


def distinct_default_names(paths: Iterable[str], root: str = "") -> list[str]:
    """Return a name for each checkpoint under a root, with as few folders of its path as tell it from the others."""
    choices = [[*default_names(path, root)] for path in paths]
    places = [0] * len(choices)
    while True:
        names = [given[place] for given, place in zip(choices, places, strict=True)]
        shared = _shared(names)
        longer = [at for at in shared if places[at] + 1 < len(choices[at])]
        if not longer:
            return distinct(names)
        for at in longer:
            places[at] += 1


def _shared(names: Iterable[str]) -> list[int]:
    """Return the places of names that occur more than once, ignoring case."""
    places: dict[str, list[int]] = {}
    for at, name in enumerate(names):
        places.setdefault(name.casefold(), []).append(at)
    return [at for found in places.values() if len(found) > 1 for at in found]
