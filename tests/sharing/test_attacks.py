"""Requests that no honest client makes: each is refused without an error of the server, and nothing is written."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import socket
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from urllib.error import URLError
from urllib.parse import quote, urlsplit

import pytest

from sharing.conftest import TABLE, Partner
from streamstate.sharing.recipients import Recipients
from streamstate.state_inspect.store import Store


def _as_objects(*values: object) -> tuple[object, ...]:
    return values


_TEXTS = (
    *("..", "../..", "%2e%2e", "%2e%2e%2f", "..%2f..%2fetc%2fpasswd", "%00", "a%00b", ".", "~", "*", "%", "%zz", "%ff"),
    *(
        "q'--",
        '"',
        "q;drop",
        "q/..",
        "//",
        "\\..\\",
        "%5c..%5c",
        "$(id)",
        "{{7*7}}",
        "%c3%a9",
        "%e5%90%8d",
        "x" * 300,
        "x" * 5000,
    ),
    *(
        "x" * 5000,
        "CON",
        "_queries",
        "_sharing",
        "_sharing%2ffiles",
        "op0%2f..%2f_epochs",
        "shared.limit",
        "q.op0",
        "q%20",
    ),
)
_VALUES = (
    "-1",
    "1e3",
    "0x1",
    "99999999999999999999",
    "1.0",
    "",
    " 3",
    "3 ",
    "NaN",
    "null",
    "true",
    "٣",
    "2",
    "[]",
    "7",
)
_BODIES: tuple[object, ...] = (
    *(b"", b"{", b"[]", b"null", b"1", b'"x"', b"\xff\xfe", b"[" * 50_000, b'{"version": ' + b"9" * 400 + b"}"),
    *({"version": value} for value in _as_objects(-1, 1.5, "x", True, [], {}, 10**30, 2, 99, "1e3", None)),
    *(
        {"timestamp": value}
        for value in _as_objects(1, "x", "", [], "0000-00-00", "9999-12-31T23:59:60Z", "1970-01-01")
    ),
    *(
        {"version": 1, "timestamp": "2026-01-01T00:00:00Z"},
        {"limitHint": -1},
        {"limitHint": "x"},
        {"startingVersion": -1},
    ),
    *(
        {"startingVersion": "x"},
        {"startingVersion": 9, "endingVersion": 3},
        {"startingVersion": 1, "endingVersion": []},
    ),
)


TERMS = "/shares/q/terms"
_SUGGESTIONS: tuple[object, ...] = (
    *(b"", b"{", b"[]", b"null", b"1", b'"x"', b"\xff\xfe", b"[" * 9_000, b"{}", b'{"price": ' + b"9" * 400 + b"}"),
    *(b'{"price": NaN}', b'{"keep": Infinity}', b'{"columns": {"op0": ["\\ud800"]}}'),
    *(
        {"tables": value}
        for value in _as_objects("op0", [], [1], [""], ["a\nb"], ["\x1b[2J"], ["\u202e"], ["x" * 201], {"op0": 1})
    ),
    *({"columns": value} for value in _as_objects(["value"], {}, {"op0": []}, {"op0": "value"}, {"": ["value"]}, 1)),
    *(
        {"where": value}
        for value in _as_objects("value > 1", {"op0": ""}, {"op0": "1 +"}, {"op0": "read_csv('x')"}, {"op0": None})
    ),
    *({"where": {"op0": text}} for text in ("1); DROP TABLE x; --", "(SELECT 1)", "(" * 2000, "x" * 4001, "a\x1b[2J")),
    *({"since": value} for value in _as_objects(-1, 1.5, True, "3", 2**63, [])),
    *({"until": value} for value in _as_objects("soon", "2030-01-01", 3, "9999-12-31T23:59:59-12:00", "x" * 5000)),
    *({"freshness": value} for value in _as_objects(0, -1, "5m", True, 10**300, [])),
    *({"keep": value} for value in _as_objects(0, 10**12, None)),
    *({"price": value} for value in _as_objects(-1, "2", 1e300, True)),
    *({name: "x"} for name in ("to", "name", "kind", "version", "query", "state", "__class__", "a" * 5000)),
    *({"columns": {"op0": ["value"]}, "to": "other"}, {"price": 1, "terms": {}}),
)
"""What is no suggestion."""


def paths() -> Iterator[str]:
    """Paths of tables and lists that are not shared."""
    for text in _TEXTS:
        yield f"/shares/{text}"
        yield f"/shares/{text}/terms"
        yield f"/shares/{text}/schemas/q/tables/op0/version"
        yield f"/shares/q/schemas/{text}/tables/op0/metadata"
        yield f"/shares/q/schemas/q/tables/{text}/version"


def questions() -> Iterator[str]:
    """Invalid arguments of valid paths."""
    for value in map(quote, _VALUES):
        yield f"{TABLE}/changes?startingVersion={value}"
        yield f"{TABLE}/changes?startingVersion=0&endingVersion={value}"
        yield f"{TABLE}/changes?startingTimestamp={value}"
        yield f"{TABLE}/version?startingTimestamp={value}"
        yield f"/shares?maxResults={value}"
        yield f"/shares?pageToken={value}"
    yield f"{TABLE}/changes"
    yield f"{TABLE}/changes?startingVersion=%ff"


def links(url: str) -> Iterator[str]:
    """Links that were tampered with."""
    base, _, signature = url.partition("?X-Amz-Signature=")
    folder, _, name = base.rpartition("/")
    text = name.removesuffix(".parquet")
    asked = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    yield f"{folder}/{name}"
    yield f"{folder}/{name}?X-Amz-Signature="
    yield f"{folder}/{name}?X-Amz-Signature={signature[:-1]}0{'' if signature[-1] != '0' else '1'}"
    yield f"{folder}/{name}?X-Amz-Signature=%ff"
    for at, values in enumerate(
        (
            ("other", "", None, 5, ["partner"]),
            ("other", "", None),
            ("../q/op0", "..", "_queries", None, "0" * 32),
            ("../../../_queries/_delta_log/00000000000000000000", "3", 1, None, ".."),
            (0, 1, 99, "5", None, -1, 10**30),
            (10**12, "x", None, [], 1e308),
        )
    ):
        for value in values:
            changed = [*asked[:at], value, *asked[at + 1 :]]
            other = base64.urlsafe_b64encode(json.dumps(changed).encode()).decode().rstrip("=")
            yield f"{folder}/{other}.parquet?X-Amz-Signature={signature}"
    for body in (b"", b"{}", b"[]", b"[1]", b"\xff", b"[" * 1000, b'["partner"]', b"null"):
        other = base64.urlsafe_b64encode(body).decode().rstrip("=") or "A"
        yield f"{folder}/{other}.parquet?X-Amz-Signature={signature}"


def in_store(store: Store) -> dict[str, int]:
    """The files of a store and their sizes; those that are handed out are made when they are asked for."""
    root = Path(store.path.removeprefix("file://"))
    names = [
        path for path in root.rglob("*") if path.is_file() and "files" not in path.parts and "usage" not in path.parts
    ]
    return {str(path.relative_to(root)): path.stat().st_size for path in names}


def test_all_are_refused(store: Store, partner: Partner) -> None:
    """Paths, arguments, bodies, tokens, methods, headers and links: more than 300 requests."""
    [(_, url)] = partner.files(partner.ask(f"{TABLE}/query", b"{}"))
    outside = partner.files(partner.ask(f"{TABLE}/changes?startingVersion=0"))
    before, seen = in_store(store), 0
    granted = {url, *(link for _, link in outside)}
    for path in itertools.chain(paths(), questions()):
        answer = partner.ask(path)
        seen += 1
        assert answer.status < 500, path
        assert b"Traceback" not in answer.content
        assert answer.status != 200 or b'"items"' in answer.content or "startingVersion" in path or "version" in path, (
            path
        )
    for body in _BODIES:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        answer = partner.ask(f"{TABLE}/query", content)
        seen += 1
        assert answer.status in (200, 400), content[:80]
    for link in links(url):
        seen += 1
        assert link not in granted
        assert partner.ask(link).status in (400, 403, 404), link
    tokens = (
        "",
        "Bearer",
        "Bearer ",
        "Bearer x",
        f"Basic {partner.token}",
        partner.token,
        f"Bearer {partner.token}x",
        "\x80",
    )
    for token in tokens:
        seen += 1
        assert partner.ask("/shares", Authorization=token).status == 401
    for capability in ("responseformat=csv", "responseformat", "=" * 500, "responseformat=delta;" * 200, "\xe9"):
        seen += 1
        answer = partner.ask(f"{TABLE}/metadata", None, **{"delta-sharing-capabilities": capability})
        assert answer.status in (200, 400)
    assert partner.ask(f"{TABLE}/version", b"{}").status == 405
    assert seen > 300
    assert in_store(store) == before


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE", "BREW"])
def test_other_methods(partner: Partner, method: str) -> None:
    """Nothing can be written through the server."""
    found = urlsplit(partner.server.url)
    connection = HTTPConnection(found.hostname or "", found.port, timeout=10)
    connection.request(method, f"{found.path}{TABLE}/version", headers={"Authorization": f"Bearer {partner.token}"})
    assert 400 <= connection.getresponse().status < 500
    connection.close()


@pytest.mark.parametrize(
    "content",
    [
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x00\xa5\x01\x00\x00",
        b"GET /delta-sharing/shares HTTP/1.1\r\n" + b"X: y\r\n" * 20_000 + b"\r\n",
        b"POST /delta-sharing/shares/q/schemas/q/tables/op0/query HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n",
        b"POST /delta-sharing/shares HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET",
        b"GET " + b"/" * 200_000 + b" HTTP/1.1\r\n\r\n",
    ],
)
def test_what_is_no_http(partner: Partner, content: bytes) -> None:
    """The connection ends, and the server goes on."""
    found = urlsplit(partner.server.url)
    with socket.create_connection((found.hostname or "", found.port or 0), timeout=10) as connection:
        try:
            connection.sendall(content)
            connection.shutdown(socket.SHUT_WR)
            answer = connection.recv(1000)
        except OSError:
            answer = b""
    assert not answer or answer.startswith((b"HTTP/1.1 4", b"HTTP/1.0 4"))
    assert partner.ask("/shares").status == 200


def test_what_is_no_suggestion(store: Store, partner: Partner) -> None:
    """It is refused, however large or odd; nothing is written, and the terms stay."""
    before, terms = in_store(store), partner.ask(TERMS).content
    for asked in _SUGGESTIONS:
        content = asked if isinstance(asked, bytes) else json.dumps(asked).encode()
        answer = partner.ask(TERMS, content)
        assert answer.status == 400, content[:80]
        assert b"Traceback" not in answer.content
    assert partner.ask(TERMS, b'{"price": 1' + b" " * 10_000 + b"}").status == 413
    for size in (100_001, 10_000_000):  # the server may close the connection before all is sent
        with contextlib.suppress(URLError, ConnectionError):
            assert 400 <= partner.ask(TERMS, b" " * size).status < 500
    assert partner.ask(TERMS).content == terms
    assert in_store(store) == before


def test_suggestions_for_what_is_not_ones_own(store: Store, partner: Partner) -> None:
    """Contracts of others, revoked ones and unknown ones are answered alike, and nothing is written."""
    store["q"].publish("other", name="secret", columns=["key"])
    store["q"].publish("partner", name="old").revoke()
    body, before = b'{"price": 1}', in_store(store)
    names = ("secret", "old", "nowhere", "q%2f..%2fsecret", "secret%00", "*", "_sharing")
    answers = [partner.ask(f"/shares/{name}/terms", asked) for name in names for asked in (body, None)]
    assert {(answer.status, answer.content) for answer in answers} == {(404, answers[0].content)}
    tokens = ("", "Bearer x", f"Basic {partner.token}")
    assert {partner.ask(TERMS, body, Authorization=token).status for token in tokens} == {401}
    assert in_store(store) == before


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "HEAD"])
def test_other_methods_for_terms(store: Store, partner: Partner, method: str) -> None:
    """A suggestion is made with POST only."""
    before, found = in_store(store), urlsplit(partner.server.url)
    connection = HTTPConnection(found.hostname or "", found.port, timeout=10)
    headers = {"Authorization": f"Bearer {partner.token}"}
    connection.request(method, f"{found.path}{TERMS}", b'{"price": 1}', headers)
    assert connection.getresponse().status == 405
    connection.close()
    assert in_store(store) == before


def test_one_recipient_sees_nothing_of_another(store: Store, partner: Partner) -> None:
    """Neither its shares, nor its tables, nor its links; what is not there is answered in the same words."""
    store["q"].publish("other", name="secret", columns=["key"])
    other = Partner(partner.server, Recipients(store.layout).issue("other").secret)
    [(_, url)] = other.files(other.ask("/shares/secret/schemas/q/tables/op0/query", b"{}"))
    assert other.ask(url).status == 200
    assert b"secret" not in partner.ask("/shares").content
    missing = [partner.ask(f"/shares/{name}/all-tables") for name in ("secret", "nowhere")]
    assert missing[0].content == missing[1].content
    assert [answer.status for answer in missing] == [404, 404]
    text = url.rpartition("/")[2].partition(".")[0]
    asked = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    stolen = base64.urlsafe_b64encode(json.dumps(["partner", *asked[1:]]).encode()).decode().rstrip("=")
    signature = partner.server._served.sign("partner", stolen)  # even with the server's own signature
    assert partner.ask(f"{partner.server.url}/files/{stolen}.parquet?X-Amz-Signature={signature}").status == 403
