"""Pages whose examples the tests do not run yet, each with what they need."""

from __future__ import annotations

from collections.abc import Mapping

PAGES: Mapping[str, str] = {}
