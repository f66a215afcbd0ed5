"""What a drill's process is told to do, and the events by which it says how far it is: files that both sides read."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

__all__ = ["Event", "Task", "events_of", "tell"]


@dataclass(frozen=True)
class Task:
    """One process: run the query from a checkpoint to the end, and then perhaps compare."""

    build_query: str
    """The file that holds the function."""
    checkpoint: str
    settings: dict[str, str]
    """Spark's."""
    mode: str
    """The output mode."""
    epochs: int | None
    """Stop after so many; None: at the end of the input."""
    compare_with: str | None = None
    """The checkpoint of the run that nobody killed."""

    def write(self, path: Path) -> None:
        """Keep it in a file."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Task:
        """From such a file."""
        return cls(**json.loads(path.read_text(encoding="utf-8")))


@dataclass(frozen=True)
class Event:
    """Something that a process says once it has happened."""

    what: str
    """``began`` (Python runs and has the function), ``spark`` (the session is there), ``started`` (so is the query),
    ``epoch``, ``ended``, ``compared`` or ``failed``."""
    at: float
    """When, in seconds since 1970."""
    facts: dict[str, Any]


def tell(path: Path, what: str, **facts: Any) -> None:
    """Add an event to a process's file."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"what": what, "at": time.time(), "facts": facts}) + "\n")


def events_of(path: Path) -> list[Event]:
    """The events that a process has told so far, in their order; one that is half written comes next time."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    except FileNotFoundError:
        return []
    return [Event(**json.loads(line)) for line in lines if line.endswith("\n")]
