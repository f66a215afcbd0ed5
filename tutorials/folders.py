"""Where the demo keeps what it makes, and how it knows what is its own."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

from streamstate.snapshots.errors import InvalidArgumentError

__all__ = ["Folders"]

_RECORD = "demo.json"


@dataclass(frozen=True)
class Folders:
    """The demo's directories: the input, the store, and the checkpoints beside the store."""

    data: Path
    store: Path

    @property
    def checkpoints(self) -> Path:
        """Where the queries keep their state: beside the store, as the magics have it."""
        name = "checkpoints" if self.store.name == "store" else f"{self.store.name}-checkpoints"
        return self.store.with_name(name)

    @property
    def log(self) -> Path:
        """What Spark itself has to say."""
        return self.checkpoints / "spark.log"

    def checkpoint(self, query: str) -> str:
        """One query's checkpoint."""
        return str(self.checkpoints / query)

    def claim(self, *, fresh: bool) -> None:
        """Make the directories the demo's, or see that they are.

        Args:
            fresh: delete the store and the checkpoints of an earlier run first.

        Raises:
            InvalidArgumentError: they hold something that the demo did not make, or made from other data.
        """
        record = self.checkpoints / _RECORD
        made_from = json.loads(record.read_text(encoding="utf-8"))["data"] if record.is_file() else None
        if made_from is None:
            self._check_unused()
        elif fresh:
            shutil.rmtree(self.store, ignore_errors=True)
            shutil.rmtree(self.checkpoints)
        elif made_from != str(self.data):
            raise InvalidArgumentError(
                f"The demo's queries in {self.checkpoints} read {made_from}, not {self.data}.\n"
                f"Add --data {made_from} to go on with them, or --fresh to start over."
            )
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        record.write_text(json.dumps({"made by": "streamstate.tutorials.demo", "data": str(self.data)}) + "\n")

    def _check_unused(self) -> None:
        for folder in (self.store, self.checkpoints):
            if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
                raise InvalidArgumentError(
                    f"{folder} is there already, and this demo did not make it; it is left as it is.\n"
                    "Name a directory for the demo's own store, such as --store demo-2/store."
                )
