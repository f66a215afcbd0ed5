"""The offsets of Kafka after each batch of a recorder: kept in the recording, and in the offsets of its readers.

A batch's position is a file beside the table, written before the batch is committed. A recorder that runs an epoch
again writes the same.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamstate.snapshots.checkpoint.source_offsets import kafka_topics

if TYPE_CHECKING:
    from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
    from streamstate.snapshots.store.delta.place import Place

_FOLDER = "_positions"


@dataclass(frozen=True)
class SourcePosition:
    """The offsets of a recorded source, as parsed JSON."""

    end: Any
    """Up to where it was read."""
    start: Any
    """From where the recorder began."""

    @classmethod
    def of(cls, recorder: CheckpointFiles, epoch: int) -> SourcePosition | None:
        """Return where an epoch of a recorder ends; None if it does not read Kafka alone."""
        planned = recorder.planned(epoch)
        if planned is None or len(planned.offsets) != 1 or (end := kafka_topics(planned.offsets[0])) is None:
            return None
        facts = json.loads(recorder.sources(planned, None) or "[null]")
        [known] = facts.values() if isinstance(facts, dict) else facts
        return cls(end, (known or {}).get("start"))

    def write(self, place: Place, batch: int) -> None:
        """Keep it as that of a batch, which is about to be committed."""
        files = place.filesystem()
        files.create_dir(_FOLDER, recursive=True)
        with files.open_output_stream(f"{_FOLDER}/{batch}") as stream:
            stream.write(json.dumps({"source": self.end, "began": self.start}, separators=(",", ":")).encode())


def position_after(place: Place, batch: int) -> dict[str, Any]:
    """Return the part of a reader's offset that says how far the source was read; empty if it is not known."""
    with contextlib.suppress(OSError, ValueError), place.filesystem().open_input_file(f"{_FOLDER}/{batch}") as stream:
        return dict(json.loads(stream.read()))
    return {}


def forget_positions(place: Place, before: int) -> None:
    """Remove the positions of batches before a number."""
    from pyarrow.fs import FileSelector

    files = place.filesystem()
    for found in files.get_file_info(FileSelector(_FOLDER, allow_not_found=True)):
        if found.base_name.isdecimal() and int(found.base_name) < before:
            files.delete_file(found.path)
