"""A word that may follow a magic and makes it do something else."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from streamstate.magics.arguments import MagicParser
from streamstate.magics.notebook import Notebook

__all__ = ["Verb"]


@dataclass(frozen=True)
class Verb:
    """One word, what it is for, its arguments, and what it does."""

    name: str
    summary: str
    arguments: Callable[[MagicParser], None]
    run: Callable[[Notebook, argparse.Namespace], Any]

    @property
    def parsed(self) -> tuple[str, str, Callable[[MagicParser], None]]:
        """What a parser has to know of it."""
        return self.name, self.summary, self.arguments
