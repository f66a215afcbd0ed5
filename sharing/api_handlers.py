"""Requests of the protocol: lists of shares, schemas and tables, and a table's version, metadata, rows and changes.

Source: https://github.com/delta-io/delta-sharing/blob/main/PROTOCOL.md
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Any, TypeAlias

from streamstate.sharing.protocol import (
    CAPABILITIES,
    CONTENT_TYPE,
    PARQUET,
    VERSION,
    AskedError,
    LinkedFile,
    body,
    file_line,
    head_lines,
    moment,
    number,
    response_format,
)
from streamstate.sharing.request_handler import ServedHandler
from streamstate.sharing.shares import NOT_THERE, SharedTable
from streamstate.sharing.suggestions import terms_answer

LARGEST = 100_000
"""Bytes of a request's body."""
_MOST_CHANGES = 500
"""Epochs whose changes one answer has."""
Pair: TypeAlias = tuple[int | None, int]
"""An epoch, after the granted one before it; None: the view was empty."""


class _Api(ServedHandler):
    """A request of the protocol, of a recipient with a token."""

    def recipient(self) -> str:
        """Return the recipient that asks."""
        scheme, _, secret = self.request.headers.get("Authorization", "").partition(" ")
        found = self.served.recipients.recipient_of(secret) if scheme.lower() == "bearer" else None
        if found is None:
            raise AskedError(401, "The token is not valid, or no longer.")
        self.served.take(found)
        return found

    def argument(self, name: str) -> str | None:
        """Return an argument of the query."""
        values = self.request.query_arguments.get(name, [])
        try:
            return values[-1].decode() if values else None
        except UnicodeDecodeError as error:
            raise AskedError(400, f"Invalid {name}: expected UTF-8.") from error


class ListsHandler(_Api):
    """The shares, schemas and tables of a recipient."""

    async def get(self, share: str | None = None, what: str | None = None, schema: str | None = None) -> None:
        """Answer with a list."""
        found = await self.answered(partial(self._listed, share, what, schema))
        if found is not None:
            self.finish(found)

    async def post(self, *_parts: str) -> None:
        """Refuse."""
        self.refuse(405, "Use GET.")

    def _listed(self, share: str | None, what: str | None, schema: str | None) -> dict[str, Any]:
        recipient, shares = self.recipient(), self.served.shares
        if share is None:
            return self._page([{"name": contract.name} for contract in shares.of(recipient)])
        contract = shares.share(recipient, share)
        if what is None:
            return {"share": {"name": contract.name}}
        query = contract.terms.query
        if what == "schemas" and schema is None:
            return self._page([{"name": query, "share": contract.name}])
        if schema is not None and schema.lower() != query.lower():
            raise AskedError(404, NOT_THERE)
        names = [table.name for table in contract.terms.tables]
        return self._page([{"name": name, "schema": query, "share": contract.name} for name in names])

    def _page(self, items: list[dict[str, str]]) -> dict[str, Any]:
        size = number(self.argument("maxResults") or 500, "maxResults")
        start = number(self.argument("pageToken") or 0, "pageToken")
        found: dict[str, Any] = {"items": items[start : start + size]}
        return found | ({"nextPageToken": str(start + size)} if size > 0 and start + size < len(items) else {})


class TermsHandler(_Api):
    """The terms of a share, and others that its recipient suggests."""

    async def get(self, share: str) -> None:
        """Answer with the terms."""
        await self._answer(share, None)

    async def post(self, share: str) -> None:
        """Note a suggestion, and answer with the terms."""
        await self._answer(share, self.request.body)

    async def _answer(self, share: str, body: bytes | None) -> None:
        found = await self.answered(lambda: terms_answer(self.served.shares, self.recipient(), share, body))
        if found is not None:
            self.set_header("Content-Type", "application/json; charset=utf-8")
            self.finish(found)


class TableHandler(_Api):
    """A table: its version, metadata, rows and changes."""

    async def get(self, share: str, schema: str, table: str, what: str) -> None:
        """Answer with the version, the metadata or changes."""
        await self._answer(share, schema, table, what)

    async def post(self, share: str, schema: str, table: str, what: str) -> None:
        """Answer with rows."""
        await self._answer(share, schema, table, what)

    async def _answer(self, share: str, schema: str, table: str, what: str) -> None:
        found = await self.answered(partial(self._found, share, schema, table, what))
        if found is None:
            return
        version, form, lines = found
        self.set_header(VERSION, str(version))
        if form is not None:
            self.set_header(CAPABILITIES, f"responseformat={form}")
            self.set_header("Content-Type", CONTENT_TYPE)
        self.finish(body(lines))

    def _found(self, share: str, schema: str, table: str, what: str) -> tuple[int, str | None, list[dict[str, Any]]]:
        recipient = self.recipient()
        if (what == "query") != (self.request.method == "POST"):
            raise AskedError(405, f"Use {'POST' if what == 'query' else 'GET'}.")
        shared = self.served.shares.table(recipient, share, schema, table)
        epochs = shared.epochs
        if what == "version":
            start = self.argument("startingTimestamp")
            return (epochs.newest if start is None else epochs.at_or_after(moment(start))), None, []
        if what == "changes" and self._is_own_client and not epochs:
            return self._first(shared, {}), PARQUET, [self._about(shared, (), None)]
        columns = self.served.shares.columns(shared)
        form = response_format(self.request.headers.get(CAPABILITIES, ""), columns.schema)
        if what == "metadata":
            return epochs.newest, form, head_lines(shared.name, columns.schema, epochs.newest, form)
        asked = self._asked() if what == "query" else {}
        if what == "query" and asked.get("startingVersion") is None:
            version = self._version(shared, asked)
            file = self.served.files.state(shared.contract.terms, shared.granted, version)
            linked = self.served.hand_out(recipient, shared, file, version, "rows")
            return version, form, [*head_lines(shared.name, columns.schema, version, form), file_line(linked, form)]
        version, pairs = self._first(shared, asked), self._pairs(shared, asked)
        lines = head_lines(shared.name, columns.schema, version, form)
        if self._is_own_client:
            lines.append(self._about(shared, pairs, columns.keys))
        changes = self._changes(recipient, shared, pairs)
        return version, form, [*lines, *(file_line(one, form, changes=True) for one in changes)]

    @property
    def _is_own_client(self) -> bool:
        """True if streamstate asks: another client would not know the line with the epochs."""
        return "streamstate" in self.request.headers.get(CAPABILITIES, "")

    def _about(self, shared: SharedTable, pairs: Sequence[Pair], keys: list[str] | None) -> dict[str, Any]:
        """Return the line for streamstate's own client: what is in the answer, and what keeps its copy in order."""
        terms, epochs = shared.contract.terms, shared.epochs
        return {
            "streamstate": {
                "epochs": [[epoch, epochs.at(epoch).isoformat(), before] for before, epoch in pairs],
                "newest": epochs.newest if epochs else None,
                "keys": keys,
                "freshness": terms.freshness,
                "version": shared.contract.version,
                "grant": terms.grant(shared.granted),
            }
        }

    def _asked(self) -> dict[str, Any]:
        if len(self.request.body) > LARGEST:
            raise AskedError(413, "The request is too large.")
        try:
            found = json.loads(self.request.body or b"{}")
        except (ValueError, RecursionError) as error:
            raise AskedError(400, "Invalid body: expected JSON.") from error
        if not isinstance(found, dict):
            raise AskedError(400, "Invalid body: expected a JSON object.")
        return found

    def _version(self, shared: SharedTable, asked: dict[str, Any]) -> int:
        if asked.get("version") is not None and asked.get("timestamp") is not None:
            raise AskedError(400, "Give a version or a timestamp, not both.")
        if asked.get("limitHint") is not None:
            number(asked["limitHint"], "limitHint")
        if asked.get("version") is not None:
            version = number(asked["version"], "version")
            shared.epochs.at(version)  # raises if it is not granted
            return version
        epochs, at = shared.epochs, asked.get("timestamp")
        return epochs.newest if at is None else epochs.at_or_before(moment(at))

    def _given(self, asked: dict[str, Any], name: str) -> Any:
        return asked.get(name, self.argument(name))

    def _first(self, shared: SharedTable, asked: dict[str, Any]) -> int:
        version, at = self._given(asked, "startingVersion"), self._given(asked, "startingTimestamp")
        if version is None and at is None:
            raise AskedError(400, "Give a startingVersion or a startingTimestamp.")
        return shared.epochs.at_or_after(moment(at)) if version is None else number(version, "startingVersion")

    def _pairs(self, shared: SharedTable, asked: dict[str, Any]) -> list[Pair]:
        """Return the epochs whose changes a request asks for, each after the epoch before that they are relative to.

        streamstate's own client asks again for what is left. With ``whole``, it gets all rows of the first epoch as
        inserts, because its copy lacks the state before.
        """
        epochs = self._epochs(shared, asked)
        if not epochs:
            return []
        is_whole = self._is_own_client and self.argument("whole") is not None
        first = None if is_whole else shared.epochs.before(epochs[0])
        return [*zip([first, *epochs[:-1]], epochs, strict=True)]

    def _epochs(self, shared: SharedTable, asked: dict[str, Any]) -> Sequence[int]:
        first = self._first(shared, asked)
        version, at = self._given(asked, "endingVersion"), self._given(asked, "endingTimestamp")
        last = shared.epochs.newest
        if version is not None:
            last = number(version, "endingVersion")
        elif at is not None:
            last = shared.epochs.at_or_before(moment(at))
        is_after = (
            first > last + 1 and not self._is_own_client
        )  # of a copy that has an epoch which is not kept any more
        if is_after or (version is not None and first > last):
            raise AskedError(400, "The startingVersion is after the last version.")
        epochs = shared.epochs.between(first, last)
        if len(epochs) > _MOST_CHANGES and not self._is_own_client:
            raise AskedError(400, f"More than {_MOST_CHANGES} versions: give an endingVersion.")
        return epochs[:_MOST_CHANGES]

    def _changes(self, recipient: str, shared: SharedTable, pairs: Sequence[Pair]) -> list[LinkedFile]:
        terms, granted, files = shared.contract.terms, shared.granted, self.served.files
        made = [(epoch, files.changes(terms, granted, before, epoch)) for before, epoch in pairs]
        hand_out = self.served.hand_out
        return [hand_out(recipient, shared, file, epoch, "changes") for epoch, file in made if file.rows]
