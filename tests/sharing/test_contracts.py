"""Contracts: publish, change, suggest, accept, revoke; what is refused says what would be right."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from threading import Thread
from typing import Any

import pytest

from streamstate.errors import InvalidArgumentError, InvalidSQLError, UnknownContractError, UnknownNameError
from streamstate.sharing.contract import Terms
from streamstate.sharing.contracts import Contracts
from streamstate.sharing.recipients import Recipients
from streamstate.state_inspect.store import Store


def test_a_contract_and_its_changes(store: Store) -> None:
    """Each change is a row of the store; another process reads the same."""
    contract = store["q"].publish("partner", where="value > 1", until="30d", freshness="5m", keep="2h", price=2.5)
    assert (contract.name, contract.to, contract.state, contract.version) == ("q", "partner", "active", 1)
    assert contract.terms.tables[0].columns == ("key", "value")
    assert (contract.terms.freshness, contract.terms.keep, contract.terms.price) == (300, 7200, 2.5)
    assert contract.terms.until is not None
    assert timedelta(days=29) < contract.terms.until - datetime.now(UTC) < timedelta(days=31)
    again = store["q"].publish("partner", columns=["value"])
    assert (again.version, again.terms.tables[0].columns) == (2, ("value",))
    other = store["q"].publish("other", name="prices", since=3)
    contracts = Store(store.path).contracts()
    assert contracts == [again, other]
    assert [contract.terms.since for contract in contracts] == [0, 3]
    assert again.revoke().state == "revoked"
    assert [contract.state for contract in store.contracts()] == ["revoked", "active"]
    assert "q with partner, revoked, version 2: op0 (value)" in repr(store.contracts()[0])


def test_terms_as_text(store: Store) -> None:
    """They are read as they were written."""
    terms = store["q"].publish("partner", where="value > 1", until="1d", freshness=1.5).terms
    assert Terms.from_json(terms.to_json()) == terms


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"to": "a b"}, InvalidArgumentError, "Invalid to='a b'"),
        ({"to": "../x"}, InvalidArgumentError, "Invalid to"),
        ({"name": "a/b"}, InvalidArgumentError, "Invalid name"),
        ({"tables": "op7"}, UnknownNameError, "op0"),
        ({"columns": ["price"]}, UnknownNameError, "value"),
        ({"columns": []}, InvalidArgumentError, "No column of op0 is granted. Columns: key, value."),
        ({"columns": {"op1": ["key"]}}, InvalidArgumentError, "Granted tables: op0"),
        ({"where": "1 +"}, InvalidSQLError, "condition"),
        ({"where": "price > 1"}, UnknownNameError, "value"),
        ({"where": "key + 1 > value"}, InvalidSQLError, "condition failed"),
        ({"result": True}, InvalidArgumentError, "Grant its tables: op0"),
        ({"since": -1}, InvalidArgumentError, "at least 0"),
        ({"until": "soon"}, InvalidArgumentError, "30d"),
        ({"until": datetime(2030, 1, 1)}, InvalidArgumentError, "no time zone"),  # noqa: DTZ001 (that is the case)
        ({"freshness": 0}, InvalidArgumentError, "5m"),
        ({"keep": "long"}, InvalidArgumentError, "30d"),
        ({"keep": float("inf")}, InvalidArgumentError, "Invalid keep=inf"),
        ({"keep": "9999999999999d"}, InvalidArgumentError, "Invalid keep='9999999999999d'"),
        ({"freshness": True}, InvalidArgumentError, "Invalid freshness=True"),
        ({"price": -1}, InvalidArgumentError, "at least 0"),
    ],
)
def test_what_is_refused(store: Store, given: dict[str, Any], error: type[Exception], said: str) -> None:
    """Nothing is written."""
    with pytest.raises(error, match=said.replace(".", r"\.")):
        store["q"].publish(**{"to": "partner", **given})
    assert store.contracts() == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"lasts": 90}, "Invalid lasts=90: expected a duration such as 500ms, 5m, 24h, 30d or a timedelta"),
        ({"lasts": "long"}, "Invalid lasts='long'"),
        ({"overlap": timedelta(hours=-1)}, "longer than zero"),
        ({"endpoint": "ftp://here"}, "http://"),
    ],
)
def test_what_is_no_token(store: Store, given: dict[str, Any], said: str) -> None:
    """A bare number could mean days: no token is issued."""
    contract = store["q"].publish("partner")
    with pytest.raises(InvalidArgumentError, match=said):
        contract.profile(**{"endpoint": "http://here", **given})
    assert not [row for row in Recipients(store.layout).rows() if row.kind == "issue"]


def test_tokens_that_end_at_once(store: Store) -> None:
    """An overlap of nothing is an overlap."""
    contract, recipients = store["q"].publish("partner"), Recipients(store.layout)
    old = contract.profile("http://here")["bearerToken"]
    new = contract.profile("http://here", lasts=timedelta(hours=1), overlap="0s")["bearerToken"]
    assert (recipients.recipient_of(old), recipients.recipient_of(new)) == (None, "partner")


def test_unknown_contracts(store: Store) -> None:
    """The error lists those that there are."""
    store["q"].publish("one")
    store["q"].publish("two")
    contracts = Contracts(store.layout)
    with pytest.raises(
        UnknownContractError, match=r"Several contracts are called q.\nContracts: q with one, q with two"
    ):
        contracts.revoke("q")
    with pytest.raises(UnknownContractError, match="There is no contract p"):
        contracts.of("p")
    assert contracts.revoke("q", "two").to == "two"


def test_two_processes_at_once(store: Store) -> None:
    """No change is lost."""
    threads = [
        Thread(target=lambda at=at: [store["q"].publish(f"partner{at}", name=f"n{n}") for n in range(4)])
        for at in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store.contracts()) == 12
