"""Pages whose examples the tests do not run, each with what they need."""

from __future__ import annotations

from collections.abc import Mapping

PAGES: Mapping[str, str] = {
    "docs/guides/availability.md": "processes that outlive it; tests/availability makes the same calls",
    "docs/guides/kafka.md": "a broker; the tests of services/kafka and the tutorial run the same calls",
    "docs/guides/connect.md": "a process without a classic session, as the programs of tests/connect are",
}
