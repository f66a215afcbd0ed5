"""Damaged descriptions of the state: the operators' metadata, and the schemas of their stores."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.damage.damage import BACKUP, Damage
from streamstate.snapshots.checkpoint.decoding.failures import ChangelogError, DamagedChangelogError
from streamstate.snapshots.checkpoint.decoding.integrity import verified
from streamstate.snapshots.checkpoint.decoding.schema_files import family_schemas
from streamstate.snapshots.checkpoint.filesystem import local_path
from streamstate.snapshots.checkpoint.state_stores import may_be_store
from streamstate.snapshots.store.names import is_number

_WITHOUT = "Spark starts without it, but neither its state reader nor a capture can read the state. Restore it."
_MOVED = (
    "Move the checkpoint back, or fork it: Checkpoint.fork writes the new paths. A checkpoint of transformWithState"
    " holds the"
    " full paths of its schemas."
)


class SchemaDamage:
    """The damage of the operators' metadata and schemas."""

    def __init__(self, checkpoint: CheckpointFiles) -> None:
        self._checkpoint = checkpoint
        self._files = checkpoint.files

    def all(self) -> Iterator[Damage]:
        """Return all damage."""
        operators = self._checkpoint.operators()
        if not operators and "state" in self._files.names(self._checkpoint.path):
            yield Damage("state", "has no folder of an operator", BACKUP)
        for operator in range(max(operators, default=-1)):
            if operator not in operators:
                yield Damage(f"state/{operator}", "is missing", BACKUP)
        for operator in operators:
            yield from self._metadata(f"state/{operator}")
            yield from self._schemas(f"state/{operator}/0")

    def _names(self, folder: str) -> list[str]:
        return self._files.names(f"{self._checkpoint.path}/{folder}")

    def _metadata(self, operator: str) -> Iterator[Damage]:
        """Damage of an operator's metadata: Spark reads only that of version 2, which each run writes."""
        runs = [int(name) for name in self._names(f"{operator}/_metadata/v2") if is_number(name)]
        name = f"{operator}/_metadata/v2/{max(runs)}" if runs else f"{operator}/_metadata/metadata"
        # Only operators with metadata of version 2 have their schemas there.
        needed = bool(runs) or bool(self._names(f"{operator}/_stateSchema"))
        if not self._names(f"{operator}/_metadata") and not needed:
            return  # a Spark before 4.0 wrote none
        try:
            metadata = _metadata_of(self._content(name), name)
        except ChangelogError as error:
            found = self._found(name, error, BACKUP if needed else _WITHOUT)
            yield found if needed else replace(found, stops=False, hides_state=True)
            return
        for store in metadata["stateStoreInfo"]:
            for path in store.get("stateSchemaFilePaths") or ():
                yield from self._listed(operator, store["storeName"], str(path))

    def _listed(self, operator: str, store: str, path: str) -> Iterator[Damage]:
        """Damage of a schema that the metadata lists with its full path."""
        name = f"{operator}/_stateSchema/{store}/{path.rpartition('/')[2]}"
        try:
            family_schemas(self._content(name), name)
        except ChangelogError as error:
            yield self._found(name, error, BACKUP)
            return
        there, local = local_path(path), local_path(self._checkpoint.path)
        if there is not None and local is not None and not Path(there).exists():
            yield Damage(f"{operator}/_metadata", f"names the schema {there}, which does not exist", _MOVED)

    def _schemas(self, partition: str) -> Iterator[Damage]:
        """Damage of the schemas of an operator's stores, which Spark keeps in the first partition."""
        stores = ["", *(f"/{name}" for name in filter(may_be_store, sorted(self._names(partition))))]
        for folder in (f"{partition}{store}/_metadata" for store in stores):
            if "schema" not in self._names(folder):
                continue
            try:
                family_schemas(self._content(f"{folder}/schema"), f"{folder}/schema")
            except ChangelogError as error:
                yield self._found(f"{folder}/schema", error, BACKUP)

    def _content(self, name: str) -> bytes:
        path = f"{self._checkpoint.path}/{name}"
        content = self._files.content(path)
        if not content:
            raise DamagedChangelogError(f"{name} is {'missing' if content is None else 'empty'}")
        try:
            return verified(self._files.content, path, content)
        except DamagedChangelogError as error:
            raise DamagedChangelogError(f"{name} does not match its checksum file") from error

    def _found(self, name: str, error: ChangelogError, advice: str) -> Damage:
        return Damage(name, str(error).removeprefix(name).strip().rstrip("."), advice)


def _metadata_of(content: bytes, name: str) -> dict[str, Any]:
    try:
        version, _, text = content.decode().partition("\n")
        metadata = dict(json.loads(text))
        if version.strip() not in {"v1", "v2"} or not isinstance(metadata["stateStoreInfo"], list):
            raise ValueError(version)
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise DamagedChangelogError(f"{name} does not describe an operator as Spark does") from error
    return metadata
