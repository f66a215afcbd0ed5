"""The server of the Delta Sharing protocol: what it answers, to whom, and until when."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import synthetic
from capturing.buckets import Bucket, bucket  # noqa: F401 (a fixture)

import streamstate as ss
from sharing.conftest import STATES, TABLE, Answer, Partner
from streamstate.errors import InvalidArgumentError
from streamstate.sharing import Limits, ShareServer, serve
from streamstate.sharing.recipients import Recipients
from streamstate.snapshots.checkpoint.object_files import ObjectFiles
from streamstate.state_inspect.store import Store


def rows(partner: Partner, url: str) -> list[dict[str, object]]:
    """The rows of a file."""
    answer = partner.ask(url)
    assert answer.status == 200
    found: list[dict[str, object]] = pq.read_table(pa.BufferReader(answer.content)).to_pylist()
    return found


def query(partner: Partner, **asked: object) -> Answer:
    """Ask for the rows of the table."""
    return partner.ask(f"{TABLE}/query", json.dumps(asked).encode())


def test_shares_schemas_and_tables(partner: Partner) -> None:
    """In pages, if the client asks for pages."""
    assert partner.ask("/shares").lines == [{"items": [{"name": "q"}]}]
    assert partner.ask("/shares/Q").lines == [{"share": {"name": "q"}}]
    assert partner.ask("/shares/q/schemas").lines == [{"items": [{"name": "q", "share": "q"}]}]
    table = {"name": "op0", "schema": "q", "share": "q"}
    for path in ("/shares/q/all-tables", "/shares/q/schemas/q/tables"):
        assert partner.ask(path).lines == [{"items": [table]}]
    assert partner.ask("/shares?maxResults=1&pageToken=1").lines == [{"items": []}]


def test_versions_are_epochs(partner: Partner) -> None:
    """The newest one, or the first that was committed at a time or later."""
    assert partner.ask(f"{TABLE}/version").headers["Delta-Table-Version"] == "5"
    at = partner.ask(f"{TABLE}/version?startingTimestamp=2026-01-01T00:01:30Z")
    assert at.headers["Delta-Table-Version"] == "3"
    [_, metadata] = partner.ask(f"{TABLE}/metadata").lines
    fields = json.loads(metadata["metaData"]["schemaString"])["fields"]
    assert [field["name"] for field in fields] == ["value"]


@pytest.mark.parametrize(
    ("asked", "epoch", "values"),
    [
        ({}, 5, [2]),
        ({"version": 1}, 1, [2, 2]),
        ({"version": 3}, 3, [2, 3, 3]),
        ({"timestamp": "2026-01-01T00:03:59Z", "limitHint": 1, "jsonPredicateHints": "x"}, 3, [2, 3, 3]),
    ],
)
def test_rows_at_an_epoch(partner: Partner, asked: dict[str, object], epoch: int, values: list[int]) -> None:
    """The granted column of the granted rows."""
    answer = query(partner, **asked)
    assert answer.headers["Delta-Table-Version"] == str(epoch)
    [(version, url)] = partner.files(answer)
    assert version == epoch
    assert [row["value"] for row in rows(partner, url)] == values
    assert rows(partner, url) == [{"value": value} for value in values]


def test_changes(partner: Partner) -> None:
    """An epoch in which the view did not change has no file; a gap belongs to the next epoch."""
    answer = partner.ask(f"{TABLE}/changes?startingVersion=0")
    found = {version: rows(partner, url) for version, url in partner.files(answer)}
    assert found == {
        1: [{"value": 2, "_change_type": "insert"}] * 2,
        3: [
            {"value": 2, "_change_type": "delete"},
            {"value": 3, "_change_type": "insert"},
            {"value": 3, "_change_type": "insert"},
        ],
        4: [{"value": 3, "_change_type": "delete"}] * 2,
    }
    by_time = partner.ask(f"{TABLE}/changes?startingTimestamp=2026-01-01T00:02:00Z&endingVersion=3")
    assert [version for version, _ in partner.files(by_time)] == [3]


def test_the_format_delta(partner: Partner) -> None:
    """The same files, as actions of Delta."""
    asked: dict[str, Any] = {"delta-sharing-capabilities": "responseformat=delta;readerfeatures=deletionvectors"}
    answer = partner.ask(f"{TABLE}/query", b"{}", **asked)
    assert answer.headers["Delta-Sharing-Capabilities"] == "responseformat=delta"
    [protocol, metadata, file] = answer.lines
    assert protocol["protocol"]["deltaProtocol"]["minReaderVersion"] == 1
    assert metadata["metaData"]["deltaMetadata"]["configuration"] == {"delta.enableChangeDataFeed": "true"}
    assert rows(partner, file["file"]["deltaSingleAction"]["add"]["path"]) == [{"value": 2}]
    changes = partner.ask(f"{TABLE}/changes?startingVersion=4", **asked)
    assert "cdc" in changes.lines[2]["file"]["deltaSingleAction"]


def test_part_of_a_file(partner: Partner) -> None:
    """Clients of Parquet read the footer first."""
    [(_, url)] = partner.files(query(partner))
    whole = partner.ask(url).content
    part = partner.ask(url, Range="bytes=-8")
    assert (part.status, part.content) == (206, whole[-8:])
    assert part.headers["Content-Range"] == f"bytes {len(whole) - 8}-{len(whole) - 1}/{len(whole)}"
    assert partner.ask(url, Range="bytes=0-3").content == b"PAR1"
    assert partner.ask(url, Range=f"bytes={len(whole)}-").status == 416
    assert partner.ask(url, Range="lines=1-2").content == whole


def test_a_revoked_contract_ends_at_once(store: Store, partner: Partner) -> None:
    """The API and the links in hand."""
    [(_, url)] = partner.files(query(partner))
    store.contracts()[0].revoke()
    began = time.monotonic()
    assert query(partner).status == 404
    assert partner.ask(url).status == 403
    assert partner.ask("/shares").lines == [{"items": []}]
    assert time.monotonic() - began < 1


def test_tokens_rotate_and_end(store: Store, partner: Partner, server: ShareServer) -> None:
    """The old token is valid for the overlap; links end with the token."""
    recipients = Recipients(store.layout)
    newer = Partner(server, recipients.issue("partner", overlap=timedelta(hours=1)).secret)
    assert [query(one).status for one in (partner, newer)] == [200, 200]
    newest = Partner(server, recipients.issue("partner", overlap=timedelta(0)).secret)
    assert [query(one).status for one in (partner, newer, newest)] == [401, 401, 200]
    [(_, url)] = newest.files(query(newest))
    recipients.revoke("partner")
    assert query(newest).status == 401
    assert newest.ask(url).status == 403
    short = Partner(server, recipients.issue("partner", lasts=timedelta(seconds=0.5)).secret)
    assert query(short).status == 200
    time.sleep(0.6)
    assert query(short).status == 401


def test_epochs_that_are_granted(store: Store, server: ShareServer, partner: Partner) -> None:
    """From an epoch on, and for a while: what is outside does not show, not even as the state before a change."""
    store["q"].publish("partner", since=3)
    assert query(partner, version=1).status == 400
    assert query(partner, version=2).content == query(partner, version=1).content  # a gap is told like that
    answer = partner.ask(f"{TABLE}/changes?startingVersion=0")
    first, url = partner.files(answer)[0]
    assert first == 3
    assert {row["_change_type"] for row in rows(partner, url)} == {"insert"}
    store["q"].publish("partner", keep="1s")
    assert query(partner).status == 404
    store["q"].publish("partner", until=datetime.now(UTC) + timedelta(seconds=0.3))
    assert query(partner).status == 200
    time.sleep(0.4)
    assert query(partner).status == 404


def test_limits(store: Store, partner: Partner) -> None:
    """Too many requests, or rows, are refused for a while."""
    with serve(store, port=0, limits=Limits(requests=0.5)) as slow:
        statuses = [Partner(slow, partner.token).ask("/shares").status for _ in range(8)]
    assert statuses == [200] * 5 + [429] * 3
    with serve(store, port=0, limits=Limits(rows=4)) as little:
        asking = Partner(little, partner.token)
        assert [query(asking, version=version).status for version in (1, 5, 3)] == [200, 200, 429]


def test_a_server_that_cannot_start(store: Store, server: ShareServer, tmp_path: Path) -> None:
    """The error says what is wrong with the certificate, or the address."""
    (tmp_path / "cert.pem").write_text("none")
    files = str(tmp_path / "cert.pem"), str(tmp_path / "cert.pem")
    with pytest.raises(InvalidArgumentError, match="certificate cannot be used"):
        serve(store, port=0, certificate=files)
    with pytest.raises(InvalidArgumentError, match="cannot be listened on"):
        serve(store, port=int(server.url.split(":")[2].split("/")[0]))


def test_what_was_granted_is_metered(store: Store, server: ShareServer, partner: Partner) -> None:
    """Rows of each epoch, with what they cost; readers of the protocol's lists cost nothing."""
    store["q"].publish("partner", columns=["value"], price=2e6)
    query(partner, version=3)
    query(partner, version=3)
    partner.ask(f"{TABLE}/changes?startingVersion=3")
    server.close()
    usage = store.usage().sort_values(["kind", "epoch"])
    assert usage[["recipient", "contract", "version", "table"]].drop_duplicates().to_numpy().tolist() == [
        ["partner", "q", 2, "op0"]
    ]
    found = usage[["kind", "epoch", "times", "rows", "cost"]].to_numpy().tolist()
    assert found == [["changes", 3, 1, 4, 8.0], ["changes", 4, 1, 2, 4.0], ["rows", 3, 2, 6, 12.0]]


def test_equal_grants_share_files(store: Store, server: ShareServer, partner: Partner) -> None:
    """A second recipient of the same view costs no second file; a sweep removes what nobody is granted."""
    store["q"].publish("other", columns=["value"], where="value > 1")
    other = Partner(server, Recipients(store.layout).issue("other").secret)
    for one in (partner, other):
        assert query(one).status == 200
    folder = Path(store.path.removeprefix("file://"), "_sharing", "files")
    files = list(folder.glob("*/*.parquet"))
    assert len(files) == 1
    served = server._served
    served.files.sweep(served.shares.grants())
    assert files[0].exists()
    for contract in store.contracts():
        contract.revoke()
    served.files.sweep(served.shares.grants())
    assert not [*folder.iterdir()]


def test_a_store_in_a_bucket(bucket: Bucket, tmp_path: Path) -> None:
    """The bucket hands the files out, by URLs that the server signs."""
    synthetic.write(tmp_path / "local", STATES)
    client = ObjectFiles(f"{bucket.uri}/store", bucket.options)._store
    for path in (file for file in (tmp_path / "local").rglob("*") if file.is_file()):
        obstore.put(client, str(path.relative_to(tmp_path / "local")), path.read_bytes())
    store = ss.open_store(f"{bucket.uri}/store", storage_options=bucket.options)
    contract = store["q"].publish("partner", where="value > 1")
    with serve(store, port=0) as server:
        partner = Partner(server, contract.profile(server.url)["bearerToken"])
        [(_, url)] = partner.files(query(partner, version=3))
        assert rows(partner, url) == [{"key": "a", "value": 3}, {"key": "b", "value": 2}, {"key": "d", "value": 3}]
        assert partner.ask(url, Range="bytes=0-3").content == b"PAR1"
        theirs = ss.open_share(contract.profile(server.url), cache=tmp_path / "copy")
        assert theirs["q"].live().table().count() == 1
        contract.revoke()
        assert partner.ask(url).status == 403
        served = server._served
        served.files.sweep(served.shares.grants())
        assert not served.files.folder.names("")
