"""What a checkpoint's own files say about the number of partitions, said anew for another number."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from streamstate.snapshots.checkpoint import SPREAD

__all__ = ["offsets_over", "operator_over", "with_state_ids"]

_OPERATOR_METADATA = re.compile(r"state/\d+/_metadata/(metadata|v2/\d+)")
_OFFSETS = re.compile(r"offsets/\d+")


def offsets_over(text: str, partitions: int) -> str:
    r"""The text of an ``offsets/N`` for a query whose state is spread over another number of partitions.

    A query takes the number from its newest epoch, planned or committed; where two epochs in a row say different
    numbers, Spark takes the later for one that changed it and does not go on. So all epochs of a fork say the same.

    Args:
        text: what the original's file says.
        partitions: the number of partitions of the fork.

    Example:
        >>> text = 'v1\n{"batchWatermarkMs":0,"conf":{"spark.sql.shuffle.partitions":"2"}}\n{"logOffset":3}'
        >>> print(offsets_over(text, 8))
        v1
        {"batchWatermarkMs":0,"conf":{"spark.sql.shuffle.partitions":"8"}}
        {"logOffset":3}
    """
    version, head, *sources = text.split("\n")
    said = json.loads(head)
    said["conf"] = {**said.get("conf", {}), SPREAD: str(partitions)}
    return "\n".join([version, _json(said), *sources])


def operator_over(text: str, partitions: int) -> str:
    """The text of an operator's metadata file, with every store spread over another number of partitions."""
    version, _, head = text.partition("\n")
    said = json.loads(head)
    for store in said["stateStoreInfo"]:
        store["numPartitions"] = partitions
    return f"{version}\n{_json(said)}"


def with_state_ids(text: str, ids: Mapping[str, Sequence[Sequence[str]]]) -> str:
    """The text of a ``commits/N`` that names other files of some operators' state."""
    version, _, head = text.partition("\n")
    said = json.loads(head)
    said["stateUniqueIds"] = {**said.get("stateUniqueIds", {}), **ids}
    return f"{version}\n{_json(said)}"


def over(path: str, text: str, partitions: int) -> str:
    """A small file's text for another number of partitions; most files say nothing of it."""
    if _OFFSETS.fullmatch(path):
        return offsets_over(text, partitions)
    return operator_over(text, partitions) if _OPERATOR_METADATA.fullmatch(path) else text


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
