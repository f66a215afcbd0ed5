"""A copy on this machine of a checkpoint that only a Spark server reaches.

The copy has the original's files, with their times, so everything that reads a checkpoint reads the copy. It is a valid
checkpoint at any moment: a commit appears once the state files of its epoch are there.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

from streamstate.errors import CaptureError, CheckpointError
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.copying import OPERATOR_METADATA, with_schema_paths
from streamstate.snapshots.checkpoint.filesystem import inside
from streamstate.snapshots.checkpoint.local_files import LocalFiles
from streamstate.snapshots.store.names import name_from

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_COMMITS, _METADATA = "commits/", "metadata"
_ORIGIN = "origin.json"
_ROUNDS = 3
"""The number of times to list a checkpoint whose files change while they are read."""


@dataclass(frozen=True)
class ServerFile:
    """A file of a checkpoint, as the server lists it."""

    name: str
    """Its path in the checkpoint."""
    size: int
    modified: int
    """Its modification time, in milliseconds since 1970."""
    uri: str = ""
    """Its path as the server names it."""

    @property
    def is_commit(self) -> bool:
        """True if it is in the commit log."""
        return self.name.startswith(_COMMITS)


class ServerCheckpoint(Protocol):
    """A checkpoint that a server lists and reads."""

    @property
    def server(self) -> str:
        """The server's address."""

    @property
    def root(self) -> str:
        """The checkpoint's path on the server."""

    def commits(self) -> frozenset[str] | None:
        """Return the files of the commit log, such as ``commits/0``; None if there is no checkpoint."""

    def listing(self) -> list[ServerFile]:
        """Return all files; those that come or go meanwhile may be missing."""

    def read(self, files: Collection[ServerFile]) -> Iterator[tuple[str, int, bytes]]:
        """Return files in pieces, each with the file's name and the piece's offset; one that is gone has none."""


@dataclass(frozen=True)
class Origin:
    """The checkpoint that a copy was made from."""

    server: str
    checkpoint: str

    def __str__(self) -> str:
        return f"{self.checkpoint} on the server {self.server}"


def origin_of(checkpoint: str) -> Origin | None:
    """Return the origin of a checkpoint if it is a copy of one that only a server reaches."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        found = json.loads(Path(checkpoint).with_name(_ORIGIN).read_text(encoding="utf-8"))
        if found["copy"] == Path(checkpoint).name:
            return Origin(found["server"], found["checkpoint"])
    return None


def refuse_copy(checkpoint: str, refused: str) -> None:
    """Raise if a checkpoint is a copy: a change of it would not reach the query.

    Args:
        checkpoint: the checkpoint's path.
        refused: the act, as the end of a sentence: ``be rescaled``.

    Raises:
        CheckpointError: it is one.
    """
    if (origin := origin_of(checkpoint)) is not None:
        raise CheckpointError(
            f"{checkpoint} is a copy of {origin}, so it cannot {refused}: only the server can change the original.\n"
            "Make the call on the server's machine, or fork the copy and use the fork."
        )


def cache_folder(name: str) -> Path:
    """Return a folder of streamstate in the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "streamstate", name)


def copies_folder() -> Path:
    """Return the folder of all copies."""
    return cache_folder("checkpoints")


class CopiedCheckpoint(CheckpointFiles):
    """A checkpoint that is read from a copy, which :meth:`refresh` brings up to date.

    Args:
        original: the checkpoint on the server.
        query_id: the id of its query.
    """

    remote = True

    def __init__(self, original: ServerCheckpoint, query_id: str) -> None:
        self.origin = Origin(original.server, original.root)
        mark = hashlib.sha256(str(self.origin).encode()).hexdigest()[:8]
        self._home = Path(inside(str(copies_folder()), f"{query_id}-{mark}"))
        super().__init__(self._home / name_from(original.root.rpartition("/")[2]))
        self._local = LocalFiles()
        self._original = original
        self._seen: frozenset[str] | None = None

    def log_modified_at(self) -> datetime | None:
        """Return None: the time of the copy's folder does not show new commits on the server."""
        return None

    def refresh(self, *, quick: bool = False) -> None:
        """Fetch what is new on the server, and remove what is gone there.

        A checkpoint that the server no longer has keeps its copy, such as the temporary one of a query that has ended.

        Args:
            quick: only if the commit log has changed since the last time.

        Raises:
            CheckpointError: the server has no such checkpoint, and there is no copy of it.
            CaptureError: the server does not answer or cannot read it; trying again may help.
            SparkConnectError: the server does not know this session any more.
        """
        if quick and self._seen is not None and self._seen == self._original.commits():
            return
        self._home.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(self._home / "lock"):
            self._write_origin()
            self._seen = self._copy()

    def _write_origin(self) -> None:
        origin = {**asdict(self.origin), "copy": Path(self.path).name}
        self._local.write(f"{self._home}/{_ORIGIN}", json.dumps(origin), replace=True)

    def _copy(self) -> frozenset[str] | None:
        """Bring the copy up to date, and return the commits that it then has; None if the checkpoint is gone."""
        for _ in range(_ROUNDS):
            # A listing takes time. Only epochs that were committed before it began have all their state files in it.
            commits = self._original.commits()
            found = [] if commits is None else self._original.listing()
            if commits is None or not any(file.name == _METADATA for file in found):
                self._require_copy()
                return None
            listed = [file for file in found if not file.is_commit or file.name in commits]
            if self._fetch([file for file in listed if not self._is_copied(file)]):
                self._remove_all_but({file.name for file in listed})
                return commits
        raise CaptureError(
            f"The checkpoint {self.origin} changed each time it was copied.\nCapture again: what is copied stays."
        )

    def _require_copy(self) -> None:
        """Raise if there is no copy of a checkpoint that is gone."""
        if not self._at(_METADATA).exists():
            raise CheckpointError(
                f"The checkpoint {self.origin.checkpoint} cannot be read: this machine does not have that folder, and"
                f" the server {self.origin.server} does not find it.\n"
                "Start the query with a checkpoint that both reach, such as one in an object store."
            )

    def _is_copied(self, file: ServerFile) -> bool:
        try:
            copied = self._at(file.name).stat()
        except FileNotFoundError:
            return False
        # The paths in the metadata of operators were changed, and so was its size.
        same_size = copied.st_size == file.size or OPERATOR_METADATA.fullmatch(file.name) is not None
        return same_size and copied.st_mtime_ns // 1_000_000 == file.modified

    def _fetch(self, files: Collection[ServerFile]) -> bool:
        """Fetch files, commits last; False if some were gone or changed meanwhile, and then no commit was added."""
        incoming = self._home / "incoming"
        shutil.rmtree(incoming, ignore_errors=True)  # of a process that was killed
        incoming.mkdir()
        commits: dict[ServerFile, Path] = {}
        missing = {file.name: file for file in files}
        for name, content in _received(self._original.read(files), missing, incoming):
            if (file := missing.pop(name)).is_commit:
                commits[file] = content
            else:
                self._place(file, content)
        if missing:
            return False
        for file in sorted(commits, key=lambda file: (len(file.name), file.name)):
            self._place(file, commits[file])
        return True

    def _place(self, file: ServerFile, content: Path) -> None:
        """Move a file that was received to its place, with the time of the original."""
        if OPERATOR_METADATA.fullmatch(file.name):
            text = content.read_text(encoding="utf-8")
            content.write_text(with_schema_paths(file.name, text, f"file:{self.path}"), encoding="utf-8")
        os.utime(content, ns=(file.modified * 1_000_000,) * 2)
        place = self._at(file.name)
        place.parent.mkdir(parents=True, exist_ok=True)
        content.replace(place)

    def _remove_all_but(self, names: Collection[str]) -> None:
        """Remove what the server has purged, commits first."""
        gone = [name for name in self._local.tree(self.path) if not name.endswith("/") and name not in names]
        for name in sorted(gone, key=lambda name: not name.startswith(_COMMITS)):
            self._at(name).unlink(missing_ok=True)

    def _at(self, name: str) -> Path:
        return Path(inside(self.path, name))


def _received(
    pieces: Iterator[tuple[str, int, bytes]], expected: Mapping[str, ServerFile], folder: Path
) -> Iterator[tuple[str, Path]]:
    """Write pieces into files of a folder, and return each file that has its size, with its name in the checkpoint."""
    places = {name: folder / str(number) for number, name in enumerate(expected)}
    left = {name: file.size for name, file in expected.items()}
    for name, at, piece in pieces:
        with places[name].open("r+b" if at else "wb") as file:
            file.seek(at)
            file.write(piece)
        left[name] -= len(piece)
        if left[name] == 0:
            yield name, places[name]


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keep other processes and threads out of the block; on Windows, which has no such locks, nothing does."""
    with path.open("ab") as file:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
