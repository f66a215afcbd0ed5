"""One thing to know about a query, with its reason and its evidence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

AdviceKind = Literal["only_grows", "watermark_stands", "not_returned"]


@dataclass(frozen=True)
class Advice:
    """One thing to know about a query: what will grow, what stands still or what is not returned yet, and why.

    Example:
        >>> advice = Advice("only_grows", "op0 can never shrink, because …", "op0 grew from 40 to 90 rows.", 12)
        >>> print(advice)
        op0 can never shrink, because …
            op0 grew from 40 to 90 rows.
    """

    kind: AdviceKind
    """``only_grows``: nothing removes rows of a state; ``watermark_stands``: rows come in, and the watermark does not
    move; ``not_returned``: rows of the result wait for the watermark."""
    text: str
    """What it is, and why: a sentence."""
    evidence: str
    """What shows it in the captured epochs."""
    epoch: int
    """The newest epoch that was looked at."""

    def __str__(self) -> str:
        return f"{self.text}\n    {self.evidence}"
