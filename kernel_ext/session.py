"""Moved to ``streamstate.spark_session``: a module called as the function hides it once it is imported."""

from __future__ import annotations

from streamstate.spark_session import session

__all__ = ["session"]
