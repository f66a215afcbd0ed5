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
    """The fault, as the end of a sentence: ``is missing``."""
    advice: str = BACKUP
    """The remedy, in one or two sentences."""
    stops: bool = True
    """True if Spark cannot start because of it; otherwise it does not read the file, or does without."""
    of_epoch: bool = False
    """True if earlier epochs do without the file, so that the query can continue from one of them."""
    hides_state: bool = False
    """True if no state can be read because of it, although Spark can start."""

    def __str__(self) -> str:
        return f"{self.file} {self.why}"

    @property
    def missing(self) -> bool:
        """True if the file is not there at all, as after Spark has purged it."""
        return self.why.startswith("is missing")

    @classmethod
    def of(cls, error: DamagedCheckpointError, root: str, advice: str | None = None, *, stops: bool = True) -> Damage:
        """Return the damage that reading a file has found."""
        return cls(error.path.removeprefix(f"{root}/"), error.why, error.advice if advice is None else advice, stops)
