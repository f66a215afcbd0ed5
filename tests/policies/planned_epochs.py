"""What each epoch of a query over files was planned to read and bound to, as its checkpoint alone has it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Planned:
    """An epoch in the offset log.

    Attributes:
        files: the names of the files that it read.
        version: the version of the level that it was bound to; None: to another level.
    """

    files: list[str]
    version: int | None


def planned_epochs(checkpoint: Path, level: str) -> dict[int, Planned]:
    """Return the committed epochs; a kill may leave several of the source's own batches to one of them."""
    batches: dict[int, set[str]] = {}
    for log in (checkpoint / "sources" / "0").glob("[0-9]*"):
        for line in log.read_text().splitlines()[1:]:
            entry = json.loads(line)
            batches.setdefault(entry["batchId"], set()).add(Path(entry["path"]).name)
    planned: dict[int, Planned] = {}
    after = -1
    for epoch in sorted(int(path.name) for path in (checkpoint / "commits").glob("[0-9]*")):
        text = (checkpoint / "offsets" / str(epoch)).read_text()
        source, binding = text.splitlines()[2:]
        upto = after if source == "-" else json.loads(source)["logOffset"]  # planned before the first file was there
        files = sorted(name for batch in range(after + 1, upto + 1) for name in batches[batch])
        planned[epoch] = Planned(files, json.loads(binding)["streamstate_shared"].get(level))
        after = upto
    return planned
