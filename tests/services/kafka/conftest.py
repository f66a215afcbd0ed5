"""One broker for all tests of the group."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from services.kafka.broker import Broker


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker; each test has its own topics."""
    started = Broker(tmp_path_factory.mktemp("broker"))
    yield started
    started.stop()
