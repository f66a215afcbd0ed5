"""What a server keeps between requests: an answer costs what changed, and a revoked contract still ends at once."""

from __future__ import annotations

import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
import synthetic

import streamstate as ss
from sharing.conftest import STATES, TABLE, Partner
from streamstate.sharing import serve
from streamstate.sharing.contract import Terms
from streamstate.sharing.granted_epochs import GrantedEpochs
from streamstate.sharing.recipients import Recipients
from streamstate.sharing.shared_files import SharedFiles
from streamstate.snapshots.store.delta import open_or_create
from streamstate.state_inspect.store import Store


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is read or parsed from now on."""
    found: list[str] = []
    for owner, name in ((Terms, "from_json"), (GrantedEpochs, "of")):
        called = getattr(owner, name)

        def counted(*arguments: object, called: object = called, name: str = name) -> object:
            found.append(name)
            return called(*arguments)  # type: ignore[operator]

        monkeypatch.setattr(owner, name, counted)
    schema = SharedFiles.schema

    def read(files: SharedFiles, *arguments: object) -> object:
        found.append("schema")
        return schema(files, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(SharedFiles, "schema", read)
    return found


def asked(partner: Partner) -> None:
    """Ask for all that needs no rows, and for rows."""
    for path in ("/shares", f"{TABLE}/version", f"{TABLE}/metadata"):
        assert partner.ask(path).status == 200
    [(_, url)] = partner.files(partner.ask(f"{TABLE}/query", b'{"version": 3}'))
    assert partner.ask(url).status == 200


def test_nothing_is_read_again(store: Store, partner: Partner, reads: list[str]) -> None:
    """A new epoch costs a look at the epochs; new contracts are parsed; columns are read once."""
    asked(partner)
    assert sorted({*reads}) == ["from_json", "of", "schema"]
    reads.clear()
    asked(partner)
    assert reads == []
    synthetic.write(Path(store.path.removeprefix("file://")), [*STATES, {"z": 9}])
    asked(partner)
    assert reads == ["of"]
    assert partner.ask(f"{TABLE}/version").headers["Delta-Table-Version"] == "6"
    reads.clear()
    store["q"].publish("other", columns=["key"])
    reads.clear()  # those of publishing it
    asked(partner)
    assert {*reads} == {"from_json"}


def test_a_column_of_another_type(store: Store, partner: Partner) -> None:
    """What is kept of a table's columns ends with the next epoch."""
    assert b'\\"long\\"' in partner.ask(f"{TABLE}/metadata").content
    layout, folder = store.layout, Path(store.path.removeprefix("file://"))
    wider = synthetic.LOG.set(4, synthetic.LOG.field(4).with_type(pa.float64()))
    open_or_create(layout.changelog("q", "op0"), wider, "log")
    synthetic.write(folder, [*STATES, {"z": 9}])
    assert b'\\"double\\"' in partner.ask(f"{TABLE}/metadata").content


def test_epochs_that_are_kept_for_a_time(store: Store, partner: Partner, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept between requests ends with the first epoch that is granted no longer."""
    shares = partner.server._served.shares
    store["q"].publish("partner", keep="1d")
    asked_at = [synthetic.START]
    monkeypatch.setattr("streamstate.sharing.shares.datetime", _Clock(asked_at))
    numbers = []
    for hours in (0, 24, 24.01, 24.055, 30):
        asked_at[0] = synthetic.START + timedelta(hours=hours)
        epochs = shares.table("partner", "q", "q", "op0").epochs
        numbers.append(list(epochs.between(0, 9)))
    assert numbers == [[0, 1, 3, 4, 5], [1, 3, 4, 5], [1, 3, 4, 5], [4, 5], []]


class _Clock:
    """Tells the time that a test chooses."""

    def __init__(self, at: list[datetime]) -> None:
        self._at = at

    def now(self, _zone: object) -> datetime:
        return self._at[0]


def test_another_process_revokes(store: Store, partner: Partner) -> None:
    """The next request and the links in hand are refused, whatever the server has kept."""
    asked(partner)
    [(_, url)] = partner.files(partner.ask(f"{TABLE}/query", b"{}"))
    command = [sys.executable, "-m", "streamstate", "share", "revoke", store.path, "q"]
    subprocess.run(command, check=True, capture_output=True)
    assert partner.ask(url).status == 403
    assert partner.ask(f"{TABLE}/version").status == 404
    assert partner.ask("/shares").lines == [{"items": []}]


def test_another_process_ends_tokens(store: Store, partner: Partner) -> None:
    """As above, with the recipient's tokens."""
    [(_, url)] = partner.files(partner.ask(f"{TABLE}/query", b"{}"))
    command = [sys.executable, "-m", "streamstate", "share", "revoke", store.path, "--to", "partner", "--tokens"]
    subprocess.run(command, check=True, capture_output=True)
    assert partner.ask(url).status == 403
    assert partner.ask("/shares").status == 401


def test_a_query_without_epochs(tmp_path: Path) -> None:
    """Other clients hear that there is no version; streamstate's own copies nothing yet."""
    synthetic.write(tmp_path / "store", [{"a": 1}])
    store = ss.open_store(tmp_path / "store")
    contract = store["q"].publish("partner", since=2)
    with serve(store, port=0) as server:
        partner = Partner(server, Recipients(store.layout).issue("partner").secret)
        for path in ("version", "metadata", "changes?startingVersion=0"):
            assert partner.ask(f"{TABLE}/{path}").status == 404
        assert partner.ask(f"{TABLE}/query", b"{}").status == 404
        theirs = ss.open_share(contract.profile(server.url), cache=tmp_path / "copy")
        assert (theirs.queries(), theirs["q"].captured()) == (["q"], [])
        [fresh] = theirs.freshness()
        assert (fresh.epoch, fresh.age, fresh.error) == (None, None, None)
        assert fresh.asked_at is not None
        synthetic.write(tmp_path / "store", [{"a": 1}, {"b": 2}, {"c": 3}])
        assert [fresh.epoch for fresh in theirs.refresh()] == [2]
        assert theirs["q"].live().table().to_arrow().to_pylist() == [{"key": "c", "value": 3}]
