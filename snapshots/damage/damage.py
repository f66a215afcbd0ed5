"""One damaged file of a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass

from streamstate.errors import DamagedCheckpointError

BACKUP = "Restore the file from a backup."


@dataclass(frozen=True)
class Damage:
    """A file of a checkpoint that is missing, torn or altered."""

    file: str
    """Its path inside the checkpoint."""
    why: str
    """What is wrong with it, as the end of a sentence: ``is missing``."""
    advice: str = BACKUP
    """What to do, in one or two sentences."""
    stops: bool = True
    """Whether Spark cannot start because of it; otherwise it does not read the file, or does without."""

    def __str__(self) -> str:
        return f"{self.file} {self.why}"

    @classmethod
    def of(cls, error: DamagedCheckpointError, root: str, advice: str | None = None, *, stops: bool = True) -> Damage:
        """The damage that reading a file has found."""
        return cls(error.path.removeprefix(f"{root}/"), error.why, error.advice if advice is None else advice, stops)
