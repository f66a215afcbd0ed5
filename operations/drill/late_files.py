"""Files of a source that come late: a drill's processes read links to them, of which some are put there later.

Spark lists and reads the links as it would the files. Only readers of folders on the local disk are led to links, and
only in the processes of a drill; nothing that they read is changed.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from streamstate.errors import InvalidArgumentError
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.filesystem import local_path

_READERS = ("csv", "json", "load", "orc", "parquet", "text", "xml")


@contextmanager
def reading_links(links: Path) -> Iterator[None]:
    """Let streaming readers of files read links in a folder of their own, which the first process fills."""
    from pyspark.sql.streaming import DataStreamReader

    own = {name: getattr(DataStreamReader, name) for name in _READERS if hasattr(DataStreamReader, name)}
    try:
        for name, read in own.items():
            setattr(DataStreamReader, name, _through(read, links))
        yield
    finally:
        for name, read in own.items():
            setattr(DataStreamReader, name, read)


def _through(read: Callable[..., Any], links: Path) -> Callable[..., Any]:
    @functools.wraps(read)
    def read_links(reader: Any, path: Any = None, *more: Any, **options: Any) -> Any:
        return read(reader, _linked(path, links), *more, **options)

    return read_links


def _linked(path: Any, links: Path) -> Any:
    """Return a folder with links to the files of a folder; the path itself if that is something else."""
    folder = local_path(path) if isinstance(path, str) else None
    if folder is None or not folder.is_dir() or any(file.is_dir() for file in folder.iterdir()):
        return path
    place = links / hashlib.sha256(str(folder).encode()).hexdigest()[:12]
    if not place.exists():
        place.mkdir(parents=True)
        for file in folder.iterdir():
            (place / file.name).symlink_to(file.resolve())
    return str(place)


class LateFiles:
    """The links to files that a run reads after an epoch, taken away."""

    def __init__(self, links: Path, checkpoint: Path, after: int) -> None:
        self._links = links
        early = _read_until(checkpoint, after)
        self._late = [link for link in links.glob("*/*") if str(link) not in early and link.name[0] not in "._"]
        if not self._late:
            raise InvalidArgumentError(
                f"slow='source' makes files come late, and after epoch {after} the query reads none from a folder.\n"
                "That needs a source of files in one folder of the local disk. Another source can be slowed outside of "
                "the drill only."
            )
        for link in self._late:
            link.rename(self._away(link))

    def arrive(self) -> None:
        """Put them back."""
        for link in self._late:
            self._away(link).rename(link)

    def _away(self, link: Path) -> Path:
        folder = self._links.with_name("late") / link.parent.name
        folder.mkdir(parents=True, exist_ok=True)
        return folder / link.name


def _read_until(checkpoint: Path, epoch: int) -> set[str]:
    """Return the files that a query has read up to an epoch, from the logs of its sources."""
    planned = CheckpointFiles(checkpoint).planned(epoch)
    offsets = () if planned is None else planned.offsets
    found = set()
    for number, offset in enumerate(offsets):
        if offset is None or "logOffset" not in offset:
            continue
        last = int(json.loads(offset)["logOffset"])
        for log in (checkpoint / "sources" / str(number)).glob("[0-9]*"):
            entries = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()[1:]]
            found |= {str(local_path(entry["path"])) for entry in entries if entry["batchId"] <= last}
    return found
