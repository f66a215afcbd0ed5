"""What a capture tells of itself when it has ended."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CaptureReport"]


@dataclass(frozen=True)
class CaptureReport:
    """What a capture did."""

    query: str
    """The query's name in the store."""
    store: str
    """The store's path."""
    epochs: tuple[int, ...] = ()
    """Epochs captured now, ascending; none where the store was up to date."""
    gaps: tuple[int, ...] = ()
    """Epochs that Spark had purged before they were captured."""
    rows: int = 0
    """Change rows written, keyframes included."""
    seconds: float = 0.0
    """How long it took."""
    advice: tuple[str, ...] = ()
    """Settings that would make capture cheaper."""

    def __add__(self, later: CaptureReport) -> CaptureReport:
        """Both captures as one."""
        return CaptureReport(
            self.query,
            self.store,
            self.epochs + later.epochs,
            self.gaps + later.gaps,
            self.rows + later.rows,
            self.seconds + later.seconds,
            tuple(dict.fromkeys(self.advice + later.advice)),
        )
