"""Where a fork's results go: nowhere, or to a place of its own; never to the original's."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamstate.snapshots.errors import ForkError, InvalidArgumentError
from streamstate.snapshots.filesystem import location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import DataStreamWriter

    from streamstate.debugger.fork_folder import ForkFolder

__all__ = ["Sink"]

SINKS_FILE = "streamstate-sinks.json"
"""The paths that a fork has written to; Spark does not look at it."""


@dataclass(frozen=True)
class Sink:
    """A fork's sink."""

    format: str = "noop"
    path: str | None = None

    @classmethod
    def parse(cls, text: object) -> Sink:
        """``noop`` or ``FORMAT:PATH``.

        Raises:
            InvalidArgumentError: where it is neither.
        """
        if text == "noop":
            return cls()
        if isinstance(text, str) and (match := re.fullmatch(r"([A-Za-z][\w.]*):(.+)", text)):
            return cls(match[1], location(match[2]))
        raise InvalidArgumentError(
            f"A fork's results cannot go to {text!r}: a fork never writes to the original's sink.\n"
            "Sinks: 'noop' (nowhere; the state shows what was computed), or FORMAT:PATH with a folder of the fork's"
            " own, such as 'parquet:out/what_if'."
        )

    def to(self, writer: DataStreamWriter) -> DataStreamWriter:
        """A writer that writes there: each epoch's results into ``PATH/epoch=N``, again where it is run again.

        Spark's own file sink cannot begin in the middle: its log has to have every epoch from the first.
        """
        if self.path is None:
            return writer.format(self.format)
        kind, path = self.format, self.path

        def write(rows: DataFrame, epoch: int) -> None:
            rows.write.format(kind).mode("overwrite").save(f"{path}/epoch={epoch}")

        return writer.foreachBatch(write)

    def claim(self, folder: ForkFolder) -> None:
        """Take the sink's path for the fork.

        Raises:
            ForkError: where there is something already that this fork did not write.
        """
        if self.path is None:
            return
        own: list[str] = json.loads(folder.text(SINKS_FILE) or "[]")
        if self.path in own:
            return
        if folder.transfer.files.names(self.path):
            raise ForkError(
                f"{self.path} holds something that {folder.path} did not write: it may be the original's sink.\n"
                "Give the fork a folder of its own that is not there yet, or sink='noop'."
            )
        folder.write({SINKS_FILE: json.dumps([*own, self.path])})
