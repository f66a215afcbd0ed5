"""One thing to know about a query, with its reason and its evidence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

AdviceKind = Literal["only_grows", "watermark_stuck", "not_returned"]


@dataclass(frozen=True)
class Advice:
    """One thing to know about a query: state that will grow, a stuck watermark or rows that wait, and the reason.

    Example:
        >>> advice = Advice("only_grows", "op0 can never shrink, because …", "op0 grew from 40 to 90 rows.", 12)
        >>> print(advice)
        op0 can never shrink, because …
            op0 grew from 40 to 90 rows.
    """

    kind: AdviceKind
    """``only_grows``: nothing removes rows of a state; ``watermark_stuck``: rows come in, and the watermark does not
    move; ``not_returned``: rows of the result wait for the watermark."""
    text: str
    """A sentence: the trouble, and its reason."""
    evidence: str
    """Facts of the captured epochs that show it."""
    epoch: int
    """The newest epoch that was looked at."""

    def __str__(self) -> str:
        return f"{self.text}\n    {self.evidence}"
