"""An S3-compatible server on localhost for the tests: ``python s3_server.py KEY`` prints its URL and serves.

It runs in a separate process, because deltalake holds the GIL while it waits for a response. Requests are handled one
at a time, because moto's check before a conditional write and the write itself are not atomic. Requests that are not
signed with the access key are rejected. ``GET /-/requests`` returns the requests since the last such call, as JSON.
``PUT /-/faults`` takes a list of ``[request, status]``: requests that match the regular expression fail with it.
"""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Iterable
from typing import Any
from urllib.parse import parse_qs, quote
from xml.sax.saxutils import escape

from moto.backends import get_backend
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

_moto = DomainDispatcherApplication(create_backend_app)
_lock = threading.Lock()
_requests: list[str] = []
_LISTED = re.compile(r"/([^/]+)/?")
_NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
_faults: list[tuple[str, int]] = []
_RECORDED, _FAULTS = "/-/requests", "/-/faults"
_REJECTED = (
    b"<Error><Code>InvalidAccessKeyId</Code>"
    b"<Message>The AWS Access Key Id you provided does not exist in our records.</Message></Error>"
)
_FAULT = b"<Error><Code>InjectedFault</Code><Message>This request fails in a test.</Message></Error>"


class Quiet(WSGIRequestHandler):
    """Does not log requests."""

    def log(self, type: str, message: str, *args: Any) -> None:  # noqa: A002 (werkzeug's name)
        """Do nothing."""

    def handle_expect_100(self) -> bool:
        """Leave ``Expect: 100-continue`` to werkzeug, which answers too: a client takes the second for the result."""
        return True


def one_at_a_time(environment: dict[str, Any], start: Any) -> Iterable[bytes]:
    """The WSGI application."""
    if environment["PATH_INFO"] == _RECORDED:
        body = json.dumps(_requests).encode()
        _requests.clear()
        start("200 OK", [("Content-Type", "application/json")])
        return [body]
    if environment["PATH_INFO"] == _FAULTS:
        _faults[:] = json.loads(environment["wsgi.input"].read(int(environment["CONTENT_LENGTH"])))
        start("200 OK", [])
        return []
    _requests.append(request := _request(environment))
    for pattern, status in _faults:
        if re.search(pattern, request):
            start(f"{status} Fault", [("Content-Type", "application/xml")])
            return [_FAULT]
    query = parse_qs(environment.get("QUERY_STRING", ""))
    credentials = [environment.get("HTTP_AUTHORIZATION", ""), *query.get("X-Amz-Credential", [])]
    if not any(f"Credential={sys.argv[1]}/" in text or text.startswith(f"{sys.argv[1]}/") for text in credentials):
        start("403 Forbidden", [("Content-Type", "application/xml")])
        return [_REJECTED]
    listed = _LISTED.fullmatch(environment["PATH_INFO"])
    if listed and "list-type" in query and listed[1] in _buckets():
        with _lock:
            body = _listing(listed[1], query)
        start("200 OK", [("Content-Type", "application/xml")])
        return [body]
    with _lock:
        response: Iterable[bytes] = _moto(environment, start)
        return response


def _buckets() -> Any:
    return get_backend("s3")[DEFAULT_ACCOUNT_ID]["aws"].buckets


def _listing(bucket: str, query: dict[str, list[str]]) -> bytes:
    """List objects, in one page: moto takes a millisecond for each."""
    prefix, delimiter, after = (query.get(name, [""])[0] for name in ("prefix", "delimiter", "start-after"))
    encoded = quote if query.get("encoding-type") == ["url"] else escape
    objects, folders = [], set()
    for name, key in sorted(_buckets()[bucket].keys.items()):
        if not name.startswith(prefix) or name <= after:
            continue
        folder, found, _ = name.removeprefix(prefix).partition(delimiter) if delimiter else ("", "", "")
        if found:
            folders.add(f"{prefix}{folder}{delimiter}")
            continue
        objects.append(
            f"<Contents><Key>{encoded(name)}</Key><LastModified>{key.last_modified_ISO8601}</LastModified>"
            f"<ETag>{escape(key.etag)}</ETag><Size>{key.size}</Size><StorageClass>STANDARD</StorageClass></Contents>"
        )
    prefixes = [f"<CommonPrefixes><Prefix>{encoded(folder)}</Prefix></CommonPrefixes>" for folder in sorted(folders)]
    return (
        f'<?xml version="1.0" encoding="UTF-8"?><ListBucketResult xmlns="{_NAMESPACE}"><Name>{bucket}</Name>'
        f"<Prefix>{encoded(prefix)}</Prefix><KeyCount>{len(objects) + len(prefixes)}</KeyCount>"
        f"<MaxKeys>1000</MaxKeys>{'<EncodingType>url</EncodingType>' if encoded is quote else ''}"
        f"<IsTruncated>false</IsTruncated>{''.join(objects)}{''.join(prefixes)}</ListBucketResult>"
    ).encode()


def _request(environment: dict[str, Any]) -> str:
    """A request as ``LIST bucket/prefix``, ``COPY bucket/key``, or as method and key: ``GET bucket/key``."""
    path, query = environment["PATH_INFO"].lstrip("/"), parse_qs(environment.get("QUERY_STRING", ""))
    if "list-type" in query:
        return f"LIST {path.rstrip('/')}/{query.get('prefix', [''])[0]}"
    method = "COPY" if "HTTP_X_AMZ_COPY_SOURCE" in environment else environment["REQUEST_METHOD"]
    return f"{method} {path}"


if __name__ == "__main__":
    server = make_server("127.0.0.1", 0, one_at_a_time, threaded=True, request_handler=Quiet)
    print(f"http://127.0.0.1:{server.port}", flush=True)  # noqa: T201 (read by the parent process)
    server.serve_forever()
