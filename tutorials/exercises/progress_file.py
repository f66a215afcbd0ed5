"""One JSON file with what a learner answered, when, and with how many hints."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

Records = dict[str, dict[str, dict[str, Any]]]
"""What is recorded of each exercise of each notebook."""


def default_path() -> Path:
    """Return where progress is kept: ``STREAMSTATE_PROGRESS``, or a file in the user's data folder."""
    given = os.environ.get("STREAMSTATE_PROGRESS")
    if given:
        return Path(given).expanduser()
    mac = Path.home() / "Library" / "Application Support"
    data = os.environ.get("XDG_DATA_HOME") or (mac if sys.platform == "darwin" else Path.home() / ".local" / "share")
    return Path(data) / "streamstate" / "progress.json"


class ProgressFile:
    """Reads and changes the file. A file that cannot be written costs the learner nothing but a line.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.notes: list[str] = []
        self._unsaved: Records | None = None

    def read(self) -> Records:
        """Return everything that is recorded."""
        if self._unsaved is not None:
            return self._unsaved
        try:
            return _checked(json.loads(self.path.read_text(encoding="utf-8")))
        except (OSError, ValueError):
            return {}

    def change(self, change: Callable[[Records], None]) -> None:
        """Change what is recorded, alone among all notebooks that use the file."""
        if self._unsaved is not None:
            change(self._unsaved)
            return
        records: Records = {}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with _locked(self.path.with_name(f"{self.path.name}.lock")):
                self._set_aside_if_broken()
                records = self.read()
                change(records)
                _replace(self.path, json.dumps(records, indent=1, ensure_ascii=False) + "\n")
        except OSError as error:
            records = self.read()
            change(records)
            self._unsaved = records
            self._note(f"Your progress lasts only as long as this notebook: {self.path} ({error.strerror}).")

    def _set_aside_if_broken(self) -> None:
        try:
            _checked(json.loads(self.path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            pass
        except ValueError:
            aside = self.path.with_name(f"{self.path.name}.broken")
            self.path.replace(aside)
            self._note(f"The file of your progress was damaged. It is now {aside.name}, and a new one was begun.")

    def _note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)


def _checked(records: Any) -> Records:
    sheets = records.values() if isinstance(records, dict) else [None]
    if not all(isinstance(sheet, dict) and all(map(_is_record, sheet.values())) for sheet in sheets):
        raise ValueError("not a file of progress")
    return dict(records)


def _is_record(record: Any) -> bool:
    if not isinstance(record, dict) or not all(type(record.get(name, 0)) is int for name in ("hints", "checks")):
        return False
    answers = record.get("answers", [])
    return isinstance(answers, list) and all(isinstance(given, dict) and "answer" in given for given in answers)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keep other notebooks out of the block; on Windows, which has no such locks, nothing does."""
    with path.open("ab") as file:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _replace(path: Path, text: str) -> None:
    """Write a file so that it is either the old one or the new one, whole."""
    descriptor, part = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(part).replace(path)
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise
