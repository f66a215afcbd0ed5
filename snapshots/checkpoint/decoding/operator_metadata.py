"""The state stores of a checkpoint, from the metadata that Spark records since 4.0, without Spark.

Version 1 (``state/<operator>/_metadata/metadata``) is written once, version 2 (``…/_metadata/v2/<epoch>``) by each run,
and it holds from that epoch on.
"""

from __future__ import annotations

import json
import re
from typing import Any

from streamstate.errors import CheckpointError, DamagedCheckpointError, NewerCheckpointError
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.filesystem import inside
from streamstate.snapshots.checkpoint.state_tables import (
    JOIN_FORMAT,
    ListedStore,
    StateSource,
    in_order,
    legacy_stores,
    sources_of,
)
from streamstate.snapshots.store.names import is_number


def sources_in_metadata(checkpoint: CheckpointFiles, epoch: int) -> list[StateSource]:
    """Return the query's state tables at an epoch, by operator, in Spark's order.

    A restart may add or remove state variables.

    Raises:
        CheckpointError: the metadata is damaged or of an unknown version, or Spark has purged it.
    """
    return sources_of(recorded_stores(checkpoint, epoch), pinned(checkpoint, epoch).get(JOIN_FORMAT, "2"))


def recorded_stores(checkpoint: CheckpointFiles, epoch: int) -> list[ListedStore]:
    """Return the state stores at an epoch, by operator and name, including those that a Spark before 4.0 wrote."""
    stores = legacy_stores(checkpoint)
    undescribed = {store.operator for store in stores}
    for operator in checkpoint.operators():
        if operator not in undescribed:
            stores += _stores(checkpoint, operator, epoch)
    return in_order(stores)


def pinned(checkpoint: CheckpointFiles, epoch: int) -> dict[str, str]:
    """Return the settings that the query is pinned to at an epoch."""
    planned = checkpoint.planned(epoch)
    if planned is None and any(earlier < epoch for earlier in checkpoint.begun()):
        # Spark purges the oldest plans first.
        raise DamagedCheckpointError.file(f"{checkpoint.path}/offsets/{epoch}", "is missing")
    if planned is None:
        raise CheckpointError(
            f"{checkpoint.path} does not hold the settings of epoch {epoch}: Spark has purged offsets/{epoch}, or never"
            " planned the epoch.\nCapture a later epoch."
        )
    return planned.conf


def _stores(checkpoint: CheckpointFiles, operator: int, epoch: int) -> list[ListedStore]:
    path = _metadata_path(checkpoint, operator, epoch)
    text = (checkpoint.files.content(path) or b"").decode(errors="replace")
    version, _, content = text.partition("\n")
    if re.fullmatch(r"v\d+", version.strip(), re.ASCII) and version.strip() not in {"v1", "v2"}:
        raise NewerCheckpointError.file(path, version.strip(), ("v1", "v2"))
    try:
        metadata = json.loads(content)
        return [_store(checkpoint, operator, metadata, store) for store in metadata["stateStoreInfo"]]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        why = "does not describe an operator as Spark does" if text else "is empty"
        raise DamagedCheckpointError.file(path, why) from error


def _metadata_path(checkpoint: CheckpointFiles, operator: int, epoch: int) -> str:
    folder = f"{checkpoint.path}/state/{operator}/_metadata"
    runs = [int(name) for name in checkpoint.files.names(f"{folder}/v2") if is_number(name)]
    if not runs:
        return f"{folder}/metadata"
    current = [run for run in runs if run <= epoch]
    if not current:
        raise CheckpointError(
            f"{folder}/v2 has no metadata of epoch {epoch}: Spark has purged it.\nCapture epoch {min(runs)} or later."
        )
    return f"{folder}/v2/{max(current)}"


def _store(checkpoint: CheckpointFiles, operator: int, metadata: Any, store: Any) -> ListedStore:
    name, folder = str(store["storeName"]), f"{checkpoint.path}/state/{operator}"
    # Spark records absolute paths, which are wrong once a checkpoint has been moved.
    files = [str(path).rpartition("/")[2] for path in store.get("stateSchemaFilePaths", ())]
    if files:
        schema_path = inside(f"{folder}/_stateSchema", f"{name}/{files[-1]}")
    else:
        schema_path = f"{inside(f'{folder}/0', name) if name != 'default' else f'{folder}/0'}/_metadata/schema"
    properties = json.loads(metadata.get("operatorPropertiesJson") or "{}")
    variables = properties.get("stateVariables", [])
    if not all({"stateName", "stateVariableType"} <= {*variable} for variable in variables):
        raise ValueError("a state variable has no name or no type")
    kind = str(metadata["operatorInfo"]["operatorName"])
    named = str(store["stateSchemaFilePaths"][-1]) if files else ""
    return ListedStore(operator, kind, name, properties, int(store["numColsPrefixKey"]), schema_path, named)
