"""Advice on a query: what of its state will only grow, what holds its watermark, and what it has yet to return."""

from __future__ import annotations

from streamstate.state_inspect.advice.advice import Advice

__all__ = ["Advice"]
