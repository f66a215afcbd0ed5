"""Advice on a query: state that only grows, a stuck watermark, and rows not returned yet."""

from __future__ import annotations

from streamstate.state_inspect.advice.advice import Advice

__all__ = ["Advice"]
