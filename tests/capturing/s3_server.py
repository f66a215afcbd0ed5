"""An S3-compatible server on localhost for the tests: ``python s3_server.py KEY`` prints its URL and serves.

It runs in a process of its own, because deltalake keeps Python's lock while it waits for an answer. Requests are
taken one at a time: moto's look before a conditional write and the write itself are two steps. Who does not sign with
the access key is refused.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

_moto = DomainDispatcherApplication(create_backend_app)
_one = threading.Lock()
_REFUSED = (
    b"<Error><Code>InvalidAccessKeyId</Code>"
    b"<Message>The AWS Access Key Id you provided does not exist in our records.</Message></Error>"
)


class Quiet(WSGIRequestHandler):
    """Without a line for each request."""

    def log(self, type: str, message: str, *args: Any) -> None:  # noqa: A002 (werkzeug's name)
        """Nothing."""


def one_at_a_time(environment: dict[str, Any], start: Any) -> Iterable[bytes]:
    """The application."""
    if f"Credential={sys.argv[1]}/" not in environment.get("HTTP_AUTHORIZATION", ""):
        start("403 Forbidden", [("Content-Type", "application/xml")])
        return [_REFUSED]
    with _one:
        answer: Iterable[bytes] = _moto(environment, start)
        return answer


if __name__ == "__main__":
    server = make_server("127.0.0.1", 0, one_at_a_time, threaded=True, request_handler=Quiet)
    print(f"http://127.0.0.1:{server.port}", flush=True)  # noqa: T201 (whoever started it reads it)
    server.serve_forever()
