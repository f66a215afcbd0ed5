"""Bringing the files of one epoch of a checkpoint into another folder. The original is only read."""

from __future__ import annotations

import atexit
import json
import re
import shutil
import tempfile
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from streamstate.errors import UntrustedCheckpointError
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.filesystem import Files, files_for, inside, local_path, refuse_links_out
from streamstate.snapshots.checkpoint.fork_contents import ForkContents, epoch_gone
from streamstate.snapshots.checkpoint.local_files import Volume

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OPERATOR_METADATA = re.compile(r"state/\d+/_metadata/(metadata|v2/\d+)")
_SCHEMA_PATH = re.compile(r".*?/(state/\d+/(?:\d+/)?_stateSchema/.*)", re.DOTALL)
_SCHEMA_PATHS = "stateSchemaFilePaths"


def copy_epoch(spark: SparkSession, original: CheckpointFiles, epoch: int, target: str) -> None:
    """Bring what makes up an epoch into a folder, from which Spark can plan and run the next one.

    Raises:
        EpochGoneError: part of the epoch's state is gone.
    """
    refuse_links_out(original.path)
    files = files_for(spark, original.path, target)
    bring(ForkContents.of(original, files, epoch), original, epoch, target, files=files)


def bring(
    contents: ForkContents,
    original: CheckpointFiles,
    epoch: int,
    target: str,
    *,
    files: Files,
    adapted: Callable[[str, str], str] | None = None,
    home: str | None = None,
) -> Volume:
    """Bring some of an epoch's files into a folder.

    Args:
        contents: the files.
        original: the checkpoint that they are from.
        epoch: the epoch, for errors.
        target: the folder's path or URI.
        files: the file system of both.
        adapted: changes the text of a small file, given its path and text.
        home: where the folder will be moved to; by default it stays.

    Raises:
        EpochGoneError: some of the files are gone.
    """
    local = local_path(home or target)
    root = (home or target) if local is None else f"file:{local}"
    texts = {path: files.text(f"{original.path}/{path}") for path in contents.copied}
    volume = Volume()
    for path, text in {**texts, **contents.texts}.items():
        if text is not None:
            own = text if adapted is None else adapted(path, text)
            volume += Volume(copied=files.write(inside(target, path), with_schema_paths(path, own, root)))
    for path in contents.folders:
        files.copy_tree(inside(original.path, path), inside(target, path))
    pairs = ((inside(original.path, name), inside(target, name)) for name in contents.linked)
    try:
        return volume + files.copy(pairs)
    except FileNotFoundError as error:
        raise epoch_gone(original, files, epoch) from error


def with_schema_paths(path: str, text: str, root: str) -> str:
    """Return the text of a small file; paths of schema files in operator metadata lead into the copy at ``root``."""
    if not OPERATOR_METADATA.fullmatch(path):
        return text
    try:
        version, metadata = split_text(text)
        stores = [store for store in metadata["stateStoreInfo"] if store.get(_SCHEMA_PATHS)]
        for store in stores:
            store[_SCHEMA_PATHS] = [_schema_in(root, path, schema) for schema in store[_SCHEMA_PATHS]]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UntrustedCheckpointError.file(path, "does not describe an operator as Spark does") from error
    return f"{version}\n{as_json(metadata)}" if stores else text


def _schema_in(root: str, path: str, schema: str) -> str:
    if (found := _SCHEMA_PATH.fullmatch(schema)) is None:
        raise UntrustedCheckpointError.file(path, f"gives {schema!r} as the path of a schema, which is not inside it")
    return inside(root, found[1])


def split_text(text: str) -> tuple[str, Any]:
    """Return the version in the first line of one of Spark's small files, and the JSON of the rest."""
    version, _, head = text.partition("\n")
    return version, json.loads(head)


def as_json(value: object) -> str:
    """Return JSON as Spark writes it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def temporary_folder(purpose: str) -> tempfile.TemporaryDirectory[str]:
    """Return a temporary folder for checkpoints and stores, deleted on cleanup, and at the latest when Python exits.

    Spark's maintenance thread handles a state for up to a minute after its query has ended. If it writes after the
    folder was deleted, it creates the folder again; so the folder is deleted once more at exit.
    """
    folder = tempfile.TemporaryDirectory(prefix=f"streamstate-{purpose}-", ignore_cleanup_errors=True)
    atexit.register(shutil.rmtree, folder.name, ignore_errors=True)
    return folder
