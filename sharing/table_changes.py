"""A server's answers to questions for the changes of tables, as a copy reads them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile
from typing import Any

import pyarrow as pa
from deltalake import Schema

from streamstate.errors import ShareError
from streamstate.sharing.granted_view import CHANGE_TYPE
from streamstate.sharing.replica import COPY
from streamstate.snapshots.checkpoint.state_tables import CHANGE, EPOCH, HASH, PARTITION

_OWN_COLUMNS = {EPOCH, CHANGE, PARTITION, HASH, COPY, CHANGE_TYPE, "_valid_from", "_valid_to"}
_NOT_OURS = "The server is none of streamstate's: read it with the client of Delta Sharing, pandas or Spark."


@dataclass(frozen=True)
class SharedEpoch:
    """An epoch of an answer: its number and commit, and the granted epoch before it, from which its changes are."""

    number: int
    at: datetime
    before: int | None


@dataclass(frozen=True)
class TableChanges:
    """An answer to a question for the changes of a table.

    Attributes:
        schema: the granted columns; empty if there are no epochs.
        keys: the key columns; None: the key is not granted.
        epochs: the epochs, ascending.
        links: the URL of each epoch with changes.
        grant: the name of what is granted of the table.
        freshness: the seconds within which an epoch is promised.
    """

    schema: pa.Schema
    keys: list[str] | None
    epochs: list[SharedEpoch]
    links: dict[int, str]
    grant: str
    freshness: float | None

    @classmethod
    def of(cls, lines: Sequence[Mapping[str, Any]]) -> TableChanges:
        """Return an answer from its lines.

        Raises:
            ShareError: another server than streamstate's answered, or the columns cannot be copied.
        """
        about = next((line["streamstate"] for line in lines if "streamstate" in line), None)
        if about is None:
            raise ShareError(_NOT_OURS)
        epochs = [SharedEpoch(int(epoch), datetime.fromisoformat(at), before) for epoch, at, before in about["epochs"]]
        metadata = next((line["metaData"] for line in lines if "metaData" in line), None)
        schema = pa.schema([])
        if metadata is not None:
            text = metadata.get("deltaMetadata", metadata)["schemaString"]
            schema = _checked(pa.schema(Schema.from_json(text).to_arrow()))
        links = dict(link for line in lines if (link := _link(line)) is not None)
        return cls(schema, about["keys"], epochs, links, str(about["grant"]), about["freshness"])


def common_epochs(answers: Mapping[str, TableChanges]) -> list[SharedEpoch]:
    """Return the first epochs of the answers for all tables in which they agree: others are copied the next time."""
    together = zip(*(answer.epochs for answer in answers.values()), strict=False)
    return [epochs[0] for epochs in takewhile(lambda epochs: len({*epochs}) == 1, together)]


def terms_of(answers: Mapping[str, TableChanges]) -> str:
    """Return a name of all that is granted, which differs if anything else is."""
    grants = json.dumps({table: answer.grant for table, answer in answers.items()}, sort_keys=True)
    return hashlib.sha256(grants.encode()).hexdigest()[:32]


def _checked(schema: pa.Schema) -> pa.Schema:
    """Return a server's columns; raise if they have names of streamstate's own."""
    if wrong := [name for name in schema.names if name in _OWN_COLUMNS] or len({*schema.names}) < len(schema.names):
        raise ShareError(f"The server's columns cannot be copied: {wrong}.")
    return schema


def _link(line: Mapping[str, Any]) -> tuple[int, str] | None:
    """Return the epoch and the URL of a file of changes, in either format."""
    if "cdf" in line:
        return line["cdf"]["version"], line["cdf"]["url"]
    single = line.get("file", {}).get("deltaSingleAction", {})
    return (line["file"]["version"], single["cdc"]["path"]) if "cdc" in single else None
