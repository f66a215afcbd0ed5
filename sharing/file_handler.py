"""Requests for files by signed links."""

from __future__ import annotations

import base64
import hmac
import json
import time
from functools import partial

from streamstate.sharing.protocol import AskedError
from streamstate.sharing.request_handler import ServedHandler


class FileHandler(ServedHandler):
    """A file by a signed link."""

    async def get(self, text: str) -> None:
        """Answer with the file, or a part of it."""
        await self._answer(text)

    async def head(self, text: str) -> None:
        """Answer with the file's size."""
        await self._answer(text)

    async def _answer(self, text: str) -> None:
        found = await self.answered(partial(self._content, text))
        if found is None:
            return
        if isinstance(found, str):
            self.redirect(found)
            return
        content, size, start = found
        self.set_header("Content-Type", "application/octet-stream")
        self.set_header("Accept-Ranges", "bytes")
        self.set_header("Content-Length", str(len(content) if self.request.method == "GET" else size))
        if start is not None:
            self.set_status(206)
            self.set_header("Content-Range", f"bytes {start}-{start + len(content) - 1}/{size}")
        if self.request.method == "GET":
            self.write(content)
        self.finish()

    def _content(self, text: str) -> tuple[bytes, int, int | None] | str:
        """Return a part of the file with its size and place, or the object store's own URL of it."""
        grant, name = self._checked(text)
        size = self.served.files.size(grant, name)
        if size is None:
            raise AskedError(404, "The file is gone. Ask for the table again.")
        if self.request.method == "HEAD":
            return b"", size, None
        if (link := self.served.files.link(grant, name)) is not None:
            return link
        start, end = _range(self.request.headers.get("Range"), size)
        content = self.served.files.read(grant, name, start or 0, end)
        return content or b"", size, start

    def _checked(self, text: str) -> tuple[str, str]:
        """Return the file of a link, if its recipient may still read it."""
        refused = AskedError(403, "The link is not valid, or no longer.")
        try:
            asked = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
            recipient, contract, grant, name, epoch, expires = asked
            signature = self.request.query_arguments["X-Amz-Signature"][-1].decode()
            signed = isinstance(recipient, str) and hmac.compare_digest(self.served.sign(recipient, text), signature)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise refused from error
        if not signed or time.time() >= expires:
            raise refused
        if not self.served.shares.grants_epoch(recipient, contract, grant, epoch):
            raise refused
        return grant, name


def _range(header: str | None, size: int) -> tuple[int | None, int | None]:
    """Return the first byte and the one after the last of a range that a request asks for; None: the whole."""
    if header is None:
        return None, None
    unit, _, spans = header.partition("=")
    first, dash, last = spans.partition("-")
    known = all(part == "" or (part.isascii() and part.isdigit() and len(part) < 19) for part in (first, last))
    if unit.strip() != "bytes" or not dash or not known or not (first or last):
        return None, None  # as the standard says, what is not understood is ignored
    start = int(first) if first else max(size - int(last), 0)
    end = size if not last or not first else min(int(last) + 1, size)
    if start >= size or start >= end:
        raise AskedError(416, "The range is not within the file.")
    return start, end
