"""The checkpoints that a command acts on: one, or many by several paths, globs and folders."""

from __future__ import annotations

import argparse
import glob
from collections.abc import Iterator
from pathlib import Path

from streamstate.command_line.arguments import storage_options
from streamstate.errors import InvalidArgumentError
from streamstate.snapshots.checkpoint.default_names import flow_version
from streamstate.snapshots.checkpoint.filesystem import location


def add_checkpoints(parser: argparse.ArgumentParser) -> None:
    """Add the checkpoints."""
    parser.add_argument(
        "checkpoints",
        metavar="CHECKPOINT",
        nargs="*",
        help="the query's checkpointLocation, a path or a URI; several, or a glob such as 'checkpoints/*'",
    )
    parser.add_argument(
        "--root", metavar="ROOT", action="append", default=[], help="every checkpoint below a folder; can be repeated"
    )


def only_checkpoint(given: argparse.Namespace) -> str | None:
    """Return the checkpoint if one is given by its path; None if there may be many.

    Exits with an error if none is given, or with an option that fits only one.
    """
    if not given.checkpoints and not given.root:
        given.parser.error("expected a checkpoint, or --root FOLDER for all those below a folder")
    if len(given.checkpoints) == 1 and not given.root and not _is_glob(given.checkpoints[0]):
        path: str = given.checkpoints[0]
        return path
    for option in ("name", "code"):
        if getattr(given, option, None) is not None:
            given.parser.error(f"--{option} is for one checkpoint: leave it out, or name that one alone")
    return None


def found_checkpoints(given: argparse.Namespace, *, versions: bool = False) -> list[str]:
    """Return the paths of the checkpoints as they are now, each once.

    With ``versions``, a version of a pipeline's flow brings the later ones with it.

    Raises:
        InvalidArgumentError: a root is not a folder.
    """
    return [*dict.fromkeys(_found(given, versions=versions))]


def required_checkpoints(given: argparse.Namespace) -> list[str]:
    """Return the paths of the checkpoints as they are now.

    Raises:
        InvalidArgumentError: there are none, or a root is not a folder.
    """
    found = found_checkpoints(given)
    if not found:
        where = ", ".join([*given.checkpoints, *given.root])
        raise InvalidArgumentError(f"There is no checkpoint in {where}.\nPass checkpoints of started queries.")
    return found


def named(name: str, error: object) -> str:
    """Return an error's message, which begins with a name unless it has it."""
    return f"{error}" if name in f"{error}" else f"{name}: {error}"


def _found(given: argparse.Namespace, *, versions: bool) -> Iterator[str]:
    for pattern in given.checkpoints:
        for path in _matches(pattern) if _is_glob(pattern) else [pattern]:
            yield path
            if versions:
                yield from _later(given, path)
    if given.root:
        from streamstate.operations.find_checkpoints import checkpoints

        for root in given.root:
            yield from (found.path for found in checkpoints(root, storage_options=storage_options(given)))


def _later(given: argparse.Namespace, path: str) -> list[str]:
    """Return the checkpoints of later versions, if a checkpoint is a version of a pipeline's flow."""
    if flow_version(location(path)) is None:
        return []
    from streamstate.snapshots.capture.capture import open_checkpoint
    from streamstate.snapshots.capture.flow_versions import later_versions

    opened = open_checkpoint(path, None, storage_options(given))
    return later_versions(opened.files, opened.path)


def _is_glob(path: str) -> bool:
    """Return whether a path is a pattern, and not the name of a folder. Only local paths are patterns."""
    return "://" not in path and glob.has_magic(path) and not Path(path).exists()


def _matches(pattern: str) -> list[str]:
    """Return the checkpoints that match a pattern."""
    return sorted(path for path in glob.glob(pattern, recursive=True) if (Path(path) / "metadata").is_file())  # noqa: PTH207 (a whole pattern)
