"""A profile of the Delta Sharing protocol: where a share is served, and the token that opens it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import Request, urlopen

from streamstate.errors import InvalidArgumentError, ShareError
from streamstate.sharing.protocol import CAPABILITIES

_TIMEOUT = 30.0
_LARGEST = 2**31
"""Bytes of an answer."""


@dataclass(frozen=True)
class Profile:
    """The address of a share, and its token.

    Attributes:
        endpoint: the server's URL.
        token: the bearer token.
        expires: when the token ends; None: unknown.
    """

    endpoint: str
    token: str = field(repr=False)
    expires: datetime | None = None

    @classmethod
    def read(cls, given: str | Path | Mapping[str, Any]) -> Profile:
        """Read a profile: a file, or what such a file has.

        Raises:
            InvalidArgumentError: it is none, or one of a newer kind.
        """
        try:
            found = given if isinstance(given, Mapping) else json.loads(Path(given).read_text(encoding="utf-8"))
            version, endpoint, token = (found[name] for name in ("shareCredentialsVersion", "endpoint", "bearerToken"))
            end = found.get("expirationTime")
            expires = None if end is None else datetime.fromisoformat(end)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InvalidArgumentError(
                f"{given if not isinstance(given, Mapping) else 'The mapping'} is not a share profile: {error}\n"
                "Expected JSON with shareCredentialsVersion, endpoint and bearerToken; whoever shares makes it with"
                " `streamstate share add`."
            ) from error
        if version != 1 or urlsplit(endpoint).scheme not in ("http", "https"):
            raise InvalidArgumentError(
                f"The profile has version {version!r} and endpoint {endpoint!r}: expected version 1, http:// or https://."
            )
        return cls(
            endpoint.rstrip("/"), token, expires if expires is None or expires.tzinfo else expires.replace(tzinfo=UTC)
        )


class ShareClient:
    """Asks a server of the protocol."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile

    def items(self, *parts: str) -> list[dict[str, Any]]:
        """Return all items of a list, such as those of ``shares`` or ``shares``, name, ``all-tables``."""
        found, token = list[dict[str, Any]](), None
        while True:
            page = json.loads(self._asked(_path(parts), {} if token is None else {"pageToken": token}))
            found += page.get("items", [])
            if not (token := page.get("nextPageToken")):
                return found

    def lines(self, *parts: str, **arguments: object) -> list[dict[str, Any]]:
        """Return the lines of an answer, such as that of ``shares``, …, ``changes``."""
        found = self._asked(_path(parts), arguments)
        return [json.loads(line) for line in found.splitlines() if line]

    def terms(self, share: str, suggested: str | None = None) -> bytes:
        """Return the server's answer about the terms of a share, after suggesting others, as JSON, if any are given."""
        return self._asked(_path(("shares", share, "terms")), {}, suggested)

    def file(self, url: str) -> bytes:
        """Return the content of a file by its link."""
        return self._read(Request(url), "a shared file")  # noqa: S310 (checked below)

    def _asked(self, path: str, arguments: Mapping[str, object], body: str | None = None) -> bytes:
        url = f"{self.profile.endpoint}/{path}{f'?{urlencode(arguments)}' if arguments else ''}"
        headers = {
            "Authorization": f"Bearer {self.profile.token}",
            CAPABILITIES: "responseformat=delta,parquet;streamstate=1",
        }
        data = None if body is None else body.encode()
        if data is not None:
            headers["Content-Type"] = "application/json; charset=utf-8"
        return self._read(Request(url, data=data, headers=headers), path)  # noqa: S310 (the profile's)

    def _read(self, request: Request, what: str) -> bytes:
        if urlsplit(request.full_url).scheme not in ("http", "https"):
            raise ShareError(f"{self.profile.endpoint} answered with a link that is none of HTTP.")
        try:
            with urlopen(request, timeout=_TIMEOUT) as answer:  # noqa: S310 (checked)
                content: bytes = answer.read(_LARGEST)
                return content
        except HTTPError as error:
            raise ShareError(f"{self.profile.endpoint} refused {what}: {_reason(error)}", error.code) from error
        except (URLError, OSError) as error:
            reason = getattr(error, "reason", error)
            raise ShareError(f"{self.profile.endpoint} cannot be reached: {reason}") from error


def _path(parts: tuple[str, ...]) -> str:
    return "/".join(quote(part, safe="") for part in parts)


def _reason(error: HTTPError) -> str:
    try:
        return f"{json.loads(error.read(10_000))['message']} (HTTP {error.code})"
    except (ValueError, KeyError, TypeError, OSError):
        return f"HTTP {error.code} {error.reason}"
