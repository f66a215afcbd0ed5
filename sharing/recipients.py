"""Who may ask: recipients and their bearer tokens, of which the store keeps digests only."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa

from streamstate.errors import InvalidArgumentError, UnknownContractError, choices
from streamstate.sharing.kept import KeptByVersion
from streamstate.snapshots.calls.checks import time_span
from streamstate.snapshots.store.layout import TIME, Layout
from streamstate.snapshots.store.numbered_table import NumberedTable

LASTS = timedelta(days=90)
"""The time for which a token is valid by default."""
_BYTES = 32
_ROWS = pa.schema(
    [
        ("number", pa.int64()),
        ("recipient", pa.string()),
        ("kind", pa.string()),
        ("token", pa.string()),
        ("expires", TIME),
        ("at", TIME),
    ]
)


@dataclass(frozen=True)
class TokenRow:
    """A row of the table of recipients.

    Attributes:
        recipient: the recipient.
        kind: ``issue``: a token is valid until ``expires``; ``expire``: an issued one ends at ``expires`` instead;
            ``key``: a random key, which signs the links of all servers of the store.
        token: the digest of the token (SHA-256, hexadecimal).
        expires: when it ends.
        number: the row's number, from 0 on.
        at: when it was written.
    """

    recipient: str
    kind: str
    token: str
    expires: datetime
    number: int = -1
    at: datetime | None = None


@dataclass(frozen=True)
class IssuedToken:
    """A token, which is shown once."""

    recipient: str
    secret: str
    expires: datetime

    def profile(self, endpoint: str) -> dict[str, Any]:
        """Return the profile that a client of the Delta Sharing protocol reads."""
        return {
            "shareCredentialsVersion": 1,
            "endpoint": endpoint,
            "bearerToken": self.secret,
            "expirationTime": self.expires.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        }

    def __repr__(self) -> str:
        return f"<IssuedToken of {self.recipient}, until {self.expires:%Y-%m-%d %H:%M %Z}>"


class Recipients(NumberedTable[TokenRow]):
    """The recipients of one store and the digests of their tokens."""

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout.sharing("recipients"), _ROWS, "recipients", "streamstate: who may read what is shared")
        self._tokens = KeptByVersion[dict[str, tuple[str, datetime]]]()

    def issue(self, recipient: str, *, lasts: timedelta = LASTS, overlap: timedelta | None = None) -> IssuedToken:
        """Issue a token; earlier ones of the recipient stay valid for the overlap (None: as long as they are)."""
        now = datetime.now(UTC)
        if overlap is not None:
            self._end(recipient, now + overlap)
        secret = secrets.token_urlsafe(_BYTES)
        expires = now + lasts
        self.append(lambda _rows: TokenRow(recipient, "issue", digest(secret), expires))
        return IssuedToken(recipient, secret, expires)

    def revoke(self, recipient: str) -> None:
        """End all tokens of a recipient at once.

        Raises:
            UnknownContractError: no token was issued for it.
        """
        known = {row.recipient for row in self.rows() if row.kind != "key"}
        if recipient not in known:
            raise UnknownContractError(f"There is no recipient {recipient}.\nRecipients: {choices(sorted(known))}.")
        self._end(recipient, datetime.now(UTC))

    def valid(self) -> dict[str, tuple[str, datetime]]:
        """Return the recipient and the end of each token that is valid now, by its digest."""
        now = datetime.now(UTC)
        return {token: of for token, of in self._all().items() if of[1] > now}

    def recipient_of(self, secret: str) -> str | None:
        """Return the recipient whose valid token this is; None if it is none. The time it takes tells nothing."""
        found, asked = None, digest(secret)
        for token, (recipient, _expires) in self.valid().items():
            if hmac.compare_digest(token, asked):
                found = recipient
        return found

    def link_key(self) -> bytes:
        """Return the key that links are signed with, which all servers of the store have; make it if there is none."""
        made = TokenRow("", "key", secrets.token_hex(_BYTES), datetime.max.replace(tzinfo=UTC))
        self.append(lambda rows: None if any(row.kind == "key" for row in rows) else made)
        return next(bytes.fromhex(row.token) for row in self.known if row.kind == "key")

    def _all(self) -> dict[str, tuple[str, datetime]]:
        rows = self.rows()
        return self._tokens.of(rows, lambda: _tokens_of(rows))

    def _end(self, recipient: str, at: datetime) -> None:
        """End the valid tokens of a recipient at a moment, if they do not end before."""
        for token, (owner, expires) in self.valid().items():
            if owner == recipient and expires > at:
                row = TokenRow(recipient, "expire", token, at)
                self.append(lambda _rows, row=row: row)  # type: ignore[misc]

    def _row_of(self, values: dict[str, Any]) -> TokenRow:
        return TokenRow(**values)

    def _values_of(self, row: TokenRow) -> Mapping[str, Any]:
        return asdict(row)


def _tokens_of(rows: Sequence[TokenRow]) -> dict[str, tuple[str, datetime]]:
    """Return the recipient and the end of each token, by its digest."""
    found: dict[str, tuple[str, datetime]] = {}
    for row in rows:
        if row.kind != "key":
            end = row.expires if row.token not in found else min(found[row.token][1], row.expires)
            found[row.token] = row.recipient, end
    return found


def digest(secret: str) -> str:
    """Return the digest of a token. A token is random and long, so a plain digest cannot be reversed."""
    return hashlib.sha256(secret.encode()).hexdigest()


def issue_profile(
    layout: Layout,
    recipient: str,
    endpoint: str,
    path: str | Path | None = None,
    *,
    lasts: str | timedelta = LASTS,
    overlap: str | timedelta | None = None,
) -> dict[str, Any]:
    """Issue a token, and return its profile; see :meth:`Contract.profile`."""
    if urlsplit(endpoint).scheme not in ("http", "https"):
        raise InvalidArgumentError(f"Invalid endpoint={endpoint!r}: expected a URL with http:// or https://.")
    if path is not None and Path(path).exists():
        raise InvalidArgumentError(f"{path} exists. Name another file: a token is shown once.")
    valid, old = _span(lasts, "lasts"), None if overlap is None else _span(overlap, "overlap")
    issued = Recipients(layout).issue(recipient, lasts=valid, overlap=old)
    found = issued.profile(endpoint)
    if path is not None:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            json.dump(found, file, indent=2)
            file.write("\n")
    return found


def _span(given: str | timedelta, name: str) -> timedelta:
    return timedelta(seconds=time_span(given, name, numbers=False, zero=True))
