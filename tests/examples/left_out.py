"""Examples that the tests do not run yet, each with what they need."""

from __future__ import annotations

from collections.abc import Mapping

PAGES: Mapping[str, str] = {
    "README.md": "a notebook's shell",
    "docs/guides/analytics.md": "a map variable with the key column user",
    "docs/guides/capture.md": "a checkpoint at the root of the file system",
    "docs/guides/cuts.md": "Kafka",
    "docs/guides/reading.md": "queries of several keys under one name",
    "docs/guides/serving.md": "an interrupt, for which its server waits",
    "docs/guides/views.md": "a view that is drawn before it is closed",
    "docs/start/install.md": "a notebook's shell",
    "docs/start/quickstart.md": "a notebook's shell",
}
