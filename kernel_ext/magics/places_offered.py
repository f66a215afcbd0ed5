"""Folders to complete with: stores where a store is meant, checkpoints where a checkpoint is."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from pathlib import Path

__all__ = ["places"]

_LOOKED_AT = 1000
_OFFERED = 50


def places(begun: str, kind: str, known: Iterable[str] = ()) -> list[str]:
    """Paths that begin with a text, what is meant before other folders.

    Args:
        begun: what is written of the path.
        kind: ``store``, ``checkpoint`` or ``path``, which means any folder.
        known: paths that are offered first, as they are.
    """
    first = [path for path in known if path.startswith(begun)]
    if "://" in begun:
        return first
    folder, slash, _last = begun.rpartition("/")
    found = [f"{folder}{slash}{one.name}" for one in _folders(folder + slash or ".") if not one.name.startswith(".")]
    fitting = [path for path in found if path.startswith(begun)]
    meant = {"store": _is_store, "checkpoint": _is_checkpoint}.get(kind, _is_none)
    right = [path for path in fitting if meant(Path(path).expanduser())]
    others = [f"{path}/" for path in fitting if path not in right]
    return list(dict.fromkeys([*first, *right, *others]))[:_OFFERED]


def _folders(path: str) -> list[Path]:
    """The folders in a folder, sorted; none where it cannot be read."""
    try:
        entries = list(islice(Path(path).expanduser().iterdir(), _LOOKED_AT))
        return sorted(one for one in entries if one.is_dir())
    except OSError:
        return []


def _is_store(path: Path) -> bool:
    return (path / "_queries").is_dir()


def _is_checkpoint(path: Path) -> bool:
    return (path / "metadata").is_file() and (path / "offsets").is_dir()


def _is_none(_path: Path) -> bool:
    return False
