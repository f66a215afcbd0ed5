"""The other side: a copy of a share is a store like any other, whatever interrupts the copying."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import synthetic
from hypothesis import given, settings
from hypothesis import strategies as st

import streamstate as ss
from sharing.conftest import STATES
from streamstate.errors import InvalidArgumentError, ShareError
from streamstate.sharing import Freshness, SharedStore, ShareServer, replica, serve
from streamstate.sharing.profile import ShareClient
from streamstate.sharing.replica import COPY
from streamstate.snapshots.store.manifest import Manifest
from streamstate.state_inspect.store import Store


def profile(store: Store, server: ShareServer, **terms: Any) -> dict[str, Any]:
    """Publish, and return what opens it."""
    return store["q"].publish("partner", **terms).profile(server.url)


def rows(store: Store, epoch: int) -> list[tuple[Any, ...]]:
    """The rows of a copy at an epoch, without the number that tells equal rows apart."""
    table = store["q"].at(epoch).table().to_arrow()
    return sorted(tuple(value for name, value in row.items() if name != COPY) for row in table.to_pylist())


@pytest.mark.parametrize("columns", [None, ["key"], ["value"]])
def test_a_copy_has_every_epoch(store: Store, server: ShareServer, tmp_path: Path, columns: list[str] | None) -> None:
    """Also where the key is not granted, and rows are equal; histories, differences and SQL work."""
    theirs = ss.open_share(profile(store, server, columns=columns), cache=tmp_path / "copy")
    names = columns or ["key", "value"]
    for epoch, state in enumerate(STATES):
        if state is not None:
            whole = [{"key": key, "value": value} for key, value in state.items()]
            assert rows(theirs, epoch) == sorted(tuple(row[name] for name in names) for row in whole)
    captured = [epoch for epoch, state in enumerate(STATES) if state is not None]
    assert theirs["q"].captured() == captured
    ours = store["q"].epochs().query("status == 'captured'")["committed_at"].tolist()
    assert theirs["q"].epochs()["committed_at"].tolist() == ours
    assert theirs.sql("SELECT count(*) AS n FROM q VERSION AS OF 3").to_pandas()["n"].tolist() == [3]
    if columns is None:
        assert theirs["q"].diff(1, 3).counts == store["q"].diff(1, 3).counts
        assert theirs["q"].key_history(key="a")["value"].dropna().tolist() == [1, 3]


def test_two_shares_of_one_server(store: Store, server: ShareServer, tmp_path: Path) -> None:
    """Of two shares of queries with one name, the second has the name of its share."""
    profile(store, server)
    theirs = ss.open_share(profile(store, server, name="values", columns=["value"]), cache=tmp_path / "copy")
    assert theirs.queries() == ["q", "values"]
    assert theirs["values"].live().table().value_columns == []
    again = ss.open_share(theirs_profile(theirs), cache=tmp_path / "copy")
    assert again.queries() == ["q", "values"]


def theirs_profile(theirs: SharedStore) -> dict[str, Any]:
    """The profile of an open share."""
    return {"shareCredentialsVersion": 1, "endpoint": theirs.profile.endpoint, "bearerToken": theirs.profile.token}


def test_new_epochs_arrive(store: Store, server: ShareServer, tmp_path: Path) -> None:
    """In the background; a callback hears once that the contract's promise is broken."""
    late: list[Freshness] = []
    theirs = ss.open_share(profile(store, server, freshness="5m"), cache=tmp_path / "copy")
    with theirs.follow(0.05, late=late.append) as following:
        synthetic.write(Path(store.path.removeprefix("file://")), [*STATES, {"z": 9}])
        deadline = time.monotonic() + 20
        while theirs["q"].live().epoch < 6:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert following.error is None
    assert rows(theirs, 6) == [("z", 9)]
    [fresh] = theirs.freshness()
    assert (fresh.name, fresh.epoch, fresh.promised) == ("q", 6, 300)
    assert [one.name for one in late] == ["q"]


def test_without_the_server(store: Store, tmp_path: Path) -> None:
    """What was copied can be read, and it says how old it is; without a copy, the error says what is missing."""
    with serve(store, port=0) as server:
        opened = profile(store, server)
        ss.open_share(opened, cache=tmp_path / "copy")
    offline = ss.open_share(opened, cache=tmp_path / "copy")
    assert rows(offline, 1) == [("a", 1), ("b", 2), ("c", 2)]
    [fresh] = offline.freshness()
    assert fresh.asked_at is None
    assert fresh.age is not None
    with pytest.raises(ShareError, match="cannot be reached"):
        offline.refresh()
    with pytest.raises(ShareError, match="cannot be reached"):
        ss.open_share(opened, cache=tmp_path / "other")


def test_a_revoked_share(store: Store, server: ShareServer, tmp_path: Path) -> None:
    """The copy stays; a token that ended is refused, in the server's words."""
    opened = profile(store, server)
    theirs = ss.open_share(opened, cache=tmp_path / "copy")
    store.contracts()[0].revoke()
    assert theirs.refresh()[0].epoch == 5
    with pytest.raises(ShareError, match="token is not valid") as error:
        ss.open_share({**opened, "bearerToken": "x"}, cache=tmp_path / "other")
    assert error.value.status == 401


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"shareCredentialsVersion": 2, "endpoint": "http://x", "bearerToken": "t"},
        {"shareCredentialsVersion": 1, "endpoint": "file:///etc", "bearerToken": "t"},
        {"shareCredentialsVersion": 1, "endpoint": "http://x", "bearerToken": "t", "expirationTime": "soon"},
        "nowhere.share",
    ],
)
def test_what_is_no_profile(given: Any) -> None:
    """The error says what a profile has."""
    with pytest.raises(InvalidArgumentError, match="profile"):
        ss.open_share(given)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"items": [{"share": "q", "schema": "q", "name": "../../_queries"}]}, "no names"),
        ({"items": [{"share": "q", "schema": "../q", "name": "op0"}]}, "no names"),
        ({"items": [{"share": "q", "schema": "q", "name": "_epochs"}]}, "no names"),
        ({"column": "_epoch"}, "cannot be copied"),
        ({"link": "file:///etc/passwd"}, "none of HTTP"),
        ({"link": "http://127.0.0.1:1/x.parquet"}, "cannot be reached"),
    ],
)
def test_a_server_that_lies(
    store: Store,
    server: ShareServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: dict[str, Any],
    said: str,
) -> None:
    """Nothing outside of the copy is read or written."""
    opened = profile(store, server)
    items, lines = ShareClient.items, ShareClient.lines

    def listed(client: ShareClient, *parts: str) -> list[dict[str, Any]]:
        return change["items"] if "items" in change and "all-tables" in parts else items(client, *parts)

    def answered(client: ShareClient, *parts: str, **arguments: object) -> list[dict[str, Any]]:
        found = lines(client, *parts, **arguments)
        for line in found:
            metadata = line.get("metaData", {}).get("deltaMetadata", line.get("metaData"))
            if metadata is not None and "column" in change:
                metadata["schemaString"] = metadata["schemaString"].replace('"value"', f'"{change["column"]}"')
            action = line.get("file", {}).get("deltaSingleAction", {}).get("cdc")
            if action is not None and "link" in change:
                action["path"] = change["link"]
            if "cdf" in line and "link" in change:
                line["cdf"]["url"] = change["link"]
        return found

    monkeypatch.setattr(ShareClient, "items", listed)
    monkeypatch.setattr(ShareClient, "lines", answered)
    with pytest.raises(ShareError, match=said):
        ss.open_share(opened, cache=tmp_path / "copy")
    outside = {path.name for path in tmp_path.iterdir()}
    assert outside <= {"store", "copy"}


class Killed(BaseException):
    """The process ends here."""


@settings(max_examples=12)
@given(kills=st.lists(st.integers(0, 12), max_size=6))
def test_a_copy_that_is_killed_ends_equal(tmp_path_factory: pytest.TempPathFactory, kills: list[int]) -> None:
    """At any write or request, many times: every epoch is there once in the end."""
    folder = tmp_path_factory.mktemp("shared")
    synthetic.copy_of(folder / "store", STATES)
    store = ss.open_store(folder / "store")
    with serve(store, port=0) as server, pytest.MonkeyPatch.context() as patched:
        opened = profile(store, server, where="value > 1", columns=["value"])
        countdown = [-1]

        def killing(call: Callable[..., Any]) -> Callable[..., Any]:
            def called(*arguments: Any, **options: Any) -> Any:
                if countdown[0] == 0:
                    countdown[0] = -1
                    raise Killed
                countdown[0] -= 1
                return call(*arguments, **options)

            return called

        for owner, name in (
            *((replica, name) for name in ("append_once", "open_or_create", "register")),
            *((Manifest, "append"), (ShareClient, "file"), (ShareClient, "lines")),
        ):
            patched.setattr(owner, name, killing(getattr(owner, name)))
        for kill in kills:
            countdown[0] = kill
            try:
                ss.open_share(opened, cache=folder / "copy")
            except Killed:
                continue
            countdown[0] = -1
        countdown[0] = -1
        theirs = ss.open_share(opened, cache=folder / "copy")
    for epoch, state in enumerate(STATES):
        if state is not None:
            assert rows(theirs, epoch) == sorted((value,) for value in state.values() if value > 1)


@pytest.mark.parametrize("since", [0, 3])
def test_a_long_history_is_copied_in_parts(
    store: Store, server: ShareServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, since: int
) -> None:
    """One answer has only so many epochs; the first may be far from epoch 0."""
    monkeypatch.setattr("streamstate.sharing.api_handlers._MOST_CHANGES", 2)
    theirs = ss.open_share(profile(store, server, since=since), cache=tmp_path / "copy")
    captured = [epoch for epoch, state in enumerate(STATES) if state is not None and epoch >= since]
    assert theirs["q"].captured() == captured
    assert rows(theirs, 5) == [("b", 2)]
