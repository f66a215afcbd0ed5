"""That a fork took the place of a query: recorded beside the query's id, in its checkpoint's ``metadata``.

Spark reads only the id from that file, and never writes it again. A fork of the checkpoint gets a ``metadata`` of its
own, so it does not inherit the record.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from streamstate.errors import CheckpointError

_FIELD = "promotion"


@dataclass(frozen=True)
class PromotionRecord:
    """The promotion through which a checkpoint came to hold the state of a fork.

    Attributes:
        id: identifies the promotion.
        fork: the fork's checkpoint.
        fork_id: the fork's query id.
        epoch: the last epoch before the promotion, which both had committed.
        promoted_at: when, in ISO 8601, UTC.
        differences: for each state table, how many rows only the old state had, and how many only the fork's.
    """

    id: str
    fork: str
    fork_id: str
    epoch: int
    promoted_at: str
    differences: Mapping[str, tuple[int, int]]

    def metadata(self, query_id: str) -> str:
        """Return the text of ``metadata`` for the query that continues."""
        return json.dumps({"id": query_id, _FIELD: asdict(self)})


def promotion_in(metadata: str | None) -> PromotionRecord | None:
    """Return the promotion that the text of a checkpoint's ``metadata`` records; None if there was none."""
    record = json.loads(metadata).get(_FIELD) if metadata and _FIELD in metadata else None
    return None if record is None else record_of(record)


def record_of(fields: Mapping[str, object]) -> PromotionRecord:
    """Return a record from its JSON."""
    try:
        record = PromotionRecord(**{name: fields[name] for name in PromotionRecord.__dataclass_fields__})  # type: ignore[arg-type]
        differences = {table: (int(old), int(new)) for table, (old, new) in record.differences.items()}
        return PromotionRecord(**{**asdict(record), "epoch": int(record.epoch), "differences": differences})
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(
            "The record of a promotion cannot be read: a field is missing or invalid.\n"
            "It was damaged or edited by hand. Remove 'promotion' from the checkpoint's metadata file to go on without."
        ) from error
