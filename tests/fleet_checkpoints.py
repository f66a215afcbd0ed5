"""Many checkpoints of five epochs each, made without Spark from the recorded one."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Iterable
from pathlib import Path

EPOCHS = 5


def copies(recorded: Path, root: Path, names: Iterable[str], committed: int = EPOCHS) -> list[Path]:
    """Copy the recorded checkpoint below a folder, each time as that of another query; files are linked."""
    found = []
    for name in names:
        path = root / name
        shutil.copytree(recorded, path, copy_function=os.link)
        (path / "metadata").unlink()
        (path / ".metadata.crc").unlink()
        (path / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))
        for epoch in range(committed, EPOCHS):
            (path / "commits" / str(epoch)).unlink()
        found.append(path)
    return found


def commit(recorded: Path, path: Path, epoch: int) -> None:
    """Commit one more epoch of a copy, atomically as Spark does."""
    hidden = path / "commits" / f".{epoch}.tmp"
    shutil.copyfile(recorded / "commits" / str(epoch), hidden)
    hidden.rename(path / "commits" / str(epoch))
