"""A store that shares, and a server of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
import synthetic

import streamstate as ss
from streamstate.sharing import ShareServer, serve
from streamstate.sharing.recipients import Recipients
from streamstate.state_inspect.store import Store

STATES: list[dict[str, int] | None] = [
    {"a": 1},
    {"a": 1, "b": 2, "c": 2},
    None,
    {"a": 3, "b": 2, "d": 3},
    {"b": 2},
    {"b": 2},
]
TABLE = "/shares/q/schemas/q/tables/op0"


@dataclass
class Answer:
    """What a server answered."""

    status: int
    headers: dict[str, str]
    content: bytes = field(repr=False)

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The lines of JSON."""
        return [json.loads(line) for line in self.content.splitlines()]


class Partner:
    """A recipient with a token, who asks a server."""

    def __init__(self, server: ShareServer, token: str) -> None:
        self.server, self.token = server, token

    def ask(self, path: str, body: bytes | None = None, **headers: Any) -> Answer:
        """Ask, with the token unless another header is given."""
        url = path if path.startswith("http") else f"{self.server.url}{path}"
        given = {"Authorization": f"Bearer {self.token}"} if url.startswith(self.server.url) else {}
        request = Request(url, data=body, headers={**given, **headers})
        try:
            with urlopen(request, timeout=30) as answer:
                return Answer(answer.status, dict(answer.headers), answer.read())
        except HTTPError as error:
            return Answer(error.code, dict(error.headers), error.read())

    def files(self, answer: Answer) -> list[tuple[int, str]]:
        """The version and the URL of each file of an answer in the format parquet."""
        found = [line.get("file") or line.get("cdf") for line in answer.lines]
        return [(file["version"], file["url"]) for file in found if file]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store with one query."""
    synthetic.copy_of(tmp_path / "store", STATES)
    return ss.open_store(tmp_path / "store")


@pytest.fixture
def server(store: Store) -> Iterator[ShareServer]:
    """A server of the store."""
    with serve(store, port=0) as found:
        yield found


@pytest.fixture
def partner(store: Store, server: ShareServer) -> Partner:
    """A recipient to whom ``value`` is granted, where it is above 1."""
    store["q"].publish("partner", columns=["value"], where="value > 1")
    return Partner(server, Recipients(store.layout).issue("partner").secret)
