"""Terms that a recipient suggests: they change nothing before the store accepts them, and tell it nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamstate as ss
from sharing.conftest import TABLE, Partner
from streamstate.errors import (
    InvalidArgumentError,
    InvalidSQLError,
    ShareError,
    UnknownColumnError,
    UnknownContractError,
    UnknownTableError,
)
from streamstate.sharing import AgreedTerms, Contract, PartialTerms, SharedStore, ShareServer, Suggestion
from streamstate.sharing.contracts import MOST_OPEN, Contracts
from streamstate.sharing.recipients import Recipients
from streamstate.sharing.suggestion import partial_terms
from streamstate.state_inspect.store import Store

TERMS = "/shares/q/terms"


@pytest.fixture
def contract(store: Store) -> Contract:
    """A contract that grants a column."""
    return store["q"].publish("partner", columns=["value"], where="value > 1", freshness="5m", price=2)


@pytest.fixture
def theirs(contract: Contract, server: ShareServer, tmp_path: Path) -> SharedStore:
    """What the recipient has opened."""
    return ss.open_share(contract.profile(server.url), cache=tmp_path / "copy")


def suggestion(agreed: AgreedTerms) -> Suggestion:
    """The suggestion that a recipient sees."""
    assert agreed.suggestion is not None
    return agreed.suggestion


def test_terms_are_suggested_and_accepted(
    store: Store, server: ShareServer, theirs: SharedStore, tmp_path: Path
) -> None:
    """What is left out stays; the answer of the store shows on the other side, and new columns can be read."""
    agreed = theirs.suggest("q", columns=["value", "key"], freshness="10s", until="2030-01-01T00:00:00Z")
    assert suggestion(agreed).state == "open"
    assert (agreed.version, agreed.terms.freshness, agreed.terms.columns) == (1, 300, {"op0": ("value",)})
    [seen] = Store(store.path).contracts()
    assert (seen.version, seen.terms.freshness) == (1, 300)
    accepted = seen.accept()
    [table] = accepted.terms.tables
    assert (table.columns, table.where) == (("key", "value"), "value > 1")
    assert (accepted.version, accepted.terms.freshness, accepted.terms.price) == (2, 10, 2)
    assert f"{accepted.terms.until:%Y-%m-%d %H:%M %Z}" == "2030-01-01 00:00 UTC"
    again = theirs.terms()
    assert (again.version, suggestion(again).state, suggestion(again).terms) == (
        2,
        "accepted",
        suggestion(agreed).terms,
    )
    anew = ss.open_share(accepted.profile(server.url), cache=tmp_path / "other")
    assert anew["q"].live().table().schema.names == ["key", "value"]


def test_a_refused_suggestion(store: Store, theirs: SharedStore) -> None:
    """Refusing is on record too, and the terms in force stay; other terms that are put into force counter one."""
    theirs.suggest(price=0)
    refused = store.contracts()[0].refuse()
    assert (refused.version, refused.terms.price) == (1, 2)
    assert suggestion(theirs.terms()).state == "refused"
    theirs.suggest(price=1)
    store["q"].publish("partner", columns=["value"], price=1.5)
    agreed = theirs.terms("q")
    assert (suggestion(agreed).state, suggestion(agreed).terms.price, agreed.terms.price) == ("countered", 1, 1.5)
    kinds = [row.kind for row in Contracts(store.layout).rows()]
    assert kinds == ["offer", "suggest", "refuse", "suggest", "offer"]


def test_only_what_was_seen_is_accepted(store: Store, contract: Contract, theirs: SharedStore) -> None:
    """A recipient cannot put another suggestion in the place of one that the store is about to accept."""
    for answer in (contract.accept, contract.refuse):
        with pytest.raises(InvalidArgumentError, match="suggests no other terms"):
            answer()
    theirs.suggest(price=1)
    [seen] = store.contracts()
    theirs.suggest(price=0, columns=["key", "value"])
    for answer in (contract.accept, seen.accept, seen.refuse):
        with pytest.raises(InvalidArgumentError, match="than you have seen"):
            answer()
    assert store.contracts()[0].terms == contract.terms
    [now] = store.contracts()
    now.revoke()
    with pytest.raises(UnknownContractError, match="no contract q with partner in force"):
        now.accept()
    with pytest.raises(UnknownContractError, match="q is not shared, or no longer"):
        theirs.suggest("q", price=1)


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ({"columns": ["price"]}, UnknownColumnError),
        ({"where": "price > 1"}, UnknownColumnError),
        ({"where": "key + 1 > value"}, InvalidSQLError),
        ({"tables": ["op7"]}, UnknownTableError),
        ({"tables": ["op0"], "columns": {"op7": ["key"]}}, InvalidArgumentError),
    ],
)
def test_accepting_checks_the_terms(
    store: Store, theirs: SharedStore, asked: dict[str, Any], error: type[Exception]
) -> None:
    """As publishing does; the suggestion stays open."""
    theirs.suggest(**asked)
    [seen] = store.contracts()
    with pytest.raises(error):
        seen.accept()
    assert suggestion(theirs.terms()).is_open


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({}, "one or more of"),
        ({"columns": []}, "list of names"),
        ({"where": "1 +"}, "does not parse"),
        ({"until": "soon"}, "30d"),
        ({"freshness": -1}, "5m"),
        ({"price": -1}, "a price from 0"),
        ({"since": -1}, "an epoch"),
    ],
)
def test_invalid_arguments(store: Store, theirs: SharedStore, asked: dict[str, Any], said: str) -> None:
    """They are not sent."""
    with pytest.raises(InvalidArgumentError, match=said):
        theirs.suggest(**asked)
    assert store.contracts()[0].suggestion is None


def test_several_shares_and_tables(store: Store, theirs: SharedStore) -> None:
    """One is named; so is the table."""
    store["q"].publish("partner", name="more", tables=["op0"])
    with pytest.raises(InvalidArgumentError, match=r"2 shares are open: name one.\nShares: q, more."):
        theirs.terms()
    theirs.refresh()
    assert [theirs.terms(name).share for name in ("q", "more")] == ["q", "more"]
    assert suggestion(theirs.suggest("more", columns={"op0": ["key"]})).terms.columns == {"op0": ("key",)}
    assert [contract.suggestion is None for contract in store.contracts()] == [True, False]


def test_the_answer_tells_nothing_of_what_is_not_granted(store: Store, partner: Partner) -> None:
    """Neither of columns, nor of the condition, nor of other contracts."""
    store["q"].publish("partner", columns=["value"], where="key <> 'secret'")
    store["q"].publish("other", name="theirs")
    answers = [
        partner.ask(TERMS, json.dumps({"columns": {table: [column]}, "where": {table: f"{column} = 'a'"}}).encode())
        for table, column in (("op0", "keys"), ("op0", "key"), ("op1", "key"))
    ]
    assert [answer.status for answer in answers] == [200] * 3
    expected = answers[1].lines[0]
    for answer, name in zip(answers, ("keys", "key", "key"), strict=True):
        found = answer.lines[0]
        asked = found["suggestion"]["terms"]
        assert [*asked["columns"].values()] == [[name]]
        assert {**found, "suggestion": None} == {**expected, "suggestion": None}
        assert {*found["suggestion"]} == {"state", "at", "terms"}
    assert expected["restricted"] == ["op0"]
    assert b"secret" not in b"".join(answer.content for answer in answers)
    assert partner.ask(f"{TABLE}/query", b"{}").status == 200


def test_suggestions_are_few(store: Store, server: ShareServer, partner: Partner) -> None:
    """Each is a row of the store, so there is a limit until the store answers; the same again is no other one."""
    contracts = Contracts(store.layout)
    statuses = [partner.ask(TERMS, json.dumps({"price": price}).encode()).status for price in range(MOST_OPEN + 2)]
    assert statuses == [200] * MOST_OPEN + [429] * 2
    assert len(contracts.rows()) == 1 + MOST_OPEN
    again = json.dumps({"price": MOST_OPEN - 1}).encode()
    assert partner.ask(TERMS, again).status == 200
    assert len(contracts.rows()) == 1 + MOST_OPEN
    store.contracts()[0].refuse()
    assert partner.ask(TERMS, again).status == 200
    store["q"].publish("other", name="q")
    other = Partner(server, Recipients(store.layout).issue("other").secret)
    assert other.ask(TERMS).lines[0]["suggestion"] is None


_TEXTS = st.text(max_size=8) | st.sampled_from(["op0", "value > 1", "2030-01-01T00:00:00Z", "x = 'a'"])
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | _TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXTS, inner, max_size=3),
    max_leaves=8,
)
_NAMES = st.sampled_from([*PartialTerms.__dataclass_fields__])


@given(_JSON | st.dictionaries(_NAMES, _JSON, min_size=1))
def test_any_json_is_read_or_refused(asked: object) -> None:
    """What is read can be kept, and is the same when it is read again."""
    try:
        found = partial_terms(asked)
    except InvalidArgumentError:
        return
    assert PartialTerms.from_json(found.to_json()) == found
    assert partial_terms(json.loads(found.to_json())) == found


@pytest.mark.parametrize(
    "change",
    [
        {"share": "../x"},
        {"query": 3},
        {"version": None},
        {"terms": {}},
        {"terms": {"columns": {"op0": ["\x1b[2J"]}}},
        {"restricted": 1},
        {"suggestion": {"state": "won", "at": None, "terms": {"price": 1}}},
        {"suggestion": {"state": "open", "at": "now", "terms": {"price": 1}}},
        {"suggestion": []},
    ],
)
def test_the_answer_of_another_server(contract: Contract, change: dict[str, Any]) -> None:
    """What is none of the terms is an error, not shown."""
    answer = json.loads(AgreedTerms.of(contract).to_json())
    assert AgreedTerms.from_json(json.dumps(answer).encode()) == AgreedTerms.of(contract)
    for text in (json.dumps({**answer, **change}), "<html>", "[]"):
        with pytest.raises(ShareError, match="none that streamstate understands"):
            AgreedTerms.from_json(text.encode())


def test_how_terms_are_shown(store: Store, theirs: SharedStore) -> None:
    """To the recipient without the condition, with the state of the suggestion; every text is escaped."""
    theirs.suggest(where="value > 1 AND '<b>' <> 'a'", columns=["key", "<i>"], keep="30d")
    agreed = theirs.terms()
    assert repr(agreed).splitlines() == [
        "<AgreedTerms of q, version 1",
        "  op0: value; rows that meet a condition",
        "  visible within 5min",
        "  2 for a million rows",
        "  suggested (open): op0: key, <i>; op0 where value > 1 AND '<b>' <> 'a'; each epoch for 30d>",
    ]
    shown = agreed._repr_html_() + store.contracts()._repr_html_() + store.contracts()[0]._repr_html_()
    assert "<b>" not in shown
    assert "<i>" not in shown
    assert "op0: + key, + &lt;i&gt;, − value" in shown
    assert "(now: value &gt; 1)" in shown
    assert "suggested: op0: + key" in repr(store.contracts()[0])


def test_the_list_of_contracts_is_shown_with_what_was_read(store: Store, server: ShareServer, partner: Partner) -> None:
    """It is a list, and a table in a notebook: rows, epochs, the newest of these, and the cost."""
    store["q"].publish("partner", columns=["value"], where="value > 1", price=2e6, until="30d")
    store["q"].publish("other", name="mine")
    partner.ask(f"{TABLE}/changes?startingVersion=0")
    server.close()
    contracts = store.contracts()
    assert (len(contracts), contracts[-1].to, [*contracts]) == (2, "other", Contracts(store.layout).all())
    reading = contracts.readings()["partner", "q"]
    assert (reading.rows, reading.epochs, reading.newest, reading.cost) == (7, 3, 4, 14)
    rows = contracts._repr_html_().partition("<tbody>")[2].split("</tr>")
    assert [number in rows[0] for number in (">7<", ">3<", ">4<", ">14.00<")] == [True] * 4
    assert ">–<" in rows[1]
    assert [contract.name for contract in contracts.of_query("q")] == ["q", "mine"]
    assert contracts.of_query("other") == []


def test_a_store_without_contracts(store: Store) -> None:
    """The list is empty, and says so."""
    assert store.contracts() == []
    assert store.contracts()._repr_html_() == "<p>Nothing is granted to others.</p>"
