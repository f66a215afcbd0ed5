"""An audit record describes an audit. A check reports what it could and could not verify."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from synthetic import write

import streamstate as ss
from streamstate.errors import InvalidArgumentError, StreamStateError, UnknownEpochError, UnknownQueryError
from streamstate.replay.audit.record import checksum, epoch_chain


@pytest.fixture
def audited(counted: tuple[Path, Path]) -> Path:
    """A folder with the recorded audit record of a query, and a store with the query."""
    return counted[0].parent


@pytest.fixture
def record(audited: Path) -> dict[str, Any]:
    """The content of the record."""
    content: dict[str, Any] = json.loads((audited / "record.json").read_text())
    return content


def forged(record: dict[str, Any]) -> dict[str, Any]:
    """The record with recomputed hashes, as a forger would write it."""
    record = {**record, "chain": epoch_chain(record["states"])}
    return {**record, "checksum": checksum(record)}


def test_a_record_is_checked_against_another_history(audited: Path) -> None:
    """A store captured separately is sufficient; neither Spark nor the replays are needed."""
    for store in (audited / "store", ss.open_store(audited / "store"), ss.open_store(audited / "store")["counts"]):
        check = ss.check_audit_record(audited / "record.json", store)
        assert check.ok
        assert check.wrong == ()
        assert (check.result, check.epochs) == ("deterministic", (1, 2))


def test_the_check_lists_verified_and_unverified_claims(audited: Path) -> None:
    """Each claim is a sentence. A file cannot prove who wrote it, or that the replays ran."""
    check = ss.check_audit_record(audited / "record.json", audited / "store")
    assert [claim.split(":")[0] for claim in check.verified] == [
        "Whole",
        "Complete",
        "The query",
        "The states",
        "The input",
        "The replays",
    ]
    assert [claim.split(":")[0] for claim in check.unverified] == ["The author", "The replaying", "The rest"]
    assert all(claim.endswith(".") for claim in (*check.verified, *check.unverified))
    assert all(claim in repr(check) for claim in (*check.verified, *check.unverified))


def test_the_record_describes_the_audit(audited: Path, record: dict[str, Any]) -> None:
    """It has the versions, the epochs, each replay, and the fingerprint of every table at every epoch."""
    assert (record["format"], record["epochs"], record["result"]) == (2, [1, 2], "deterministic")
    assert {*record["made_by"]} == {"streamstate", "spark", "python", "java"}
    assert [(replay["partitions"], replay["result"]) for replay in record["replays"]] == [(2, "same"), (3, "same")]
    frame = ss.open_store(audited / "store")["counts"].fingerprints(epochs=[1, 2])
    recorded = [
        (int(epoch), table, state["fingerprint"])
        for epoch, tables in record["states"].items()
        for table, state in tables.items()
    ]
    assert recorded == [*frame[["epoch", "table", "fingerprint"]].itertuples(index=False, name=None)]
    assert len((audited / "record.json").read_text()) < 5_000


def test_a_changed_record_is_detected(audited: Path, record: dict[str, Any]) -> None:
    """Its checksum does not match."""
    check = ss.check_audit_record({**record, "started": "2026-01-01T00:00:00+00:00"}, audited / "store")
    assert not check.ok
    [claim] = check.wrong
    assert claim.startswith("Whole: the checksum does not match")


def _without(name: str, index: int) -> Callable[[dict[str, Any]], None]:
    return lambda record: record[name].pop(index)


def _invented_epochs(record: dict[str, Any]) -> None:
    record["epochs"] = [0, 1_000_000_000_000]


def _other_offsets(record: dict[str, Any]) -> None:
    record["source_offsets"] = "0" * 64


def _states_outside(record: dict[str, Any]) -> None:
    record["epochs"] = [2, 2]


def _no_states(record: dict[str, Any]) -> None:
    record["states"] = {}


def _a_state_without_tables(record: dict[str, Any]) -> None:
    record["states"]["1"] = {}


def _another_state(record: dict[str, Any]) -> None:
    record["states"]["1"]["op0"]["fingerprint"] = "0" * 32


def _no_replays(record: dict[str, Any]) -> None:
    record["replays"] = []


def _a_replay_that_stopped(record: dict[str, Any]) -> None:
    record["replays"][1]["upto"] = 1


def _one_replay_twice(record: dict[str, Any]) -> None:
    record["replays"][1] = record["replays"][0]


def _a_replay_that_diverged(record: dict[str, Any]) -> None:
    record["replays"][0]["result"] = "diverged"


def _another_result(record: dict[str, Any]) -> None:
    record["result"] = "diverged"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_invented_epochs, "Complete: there are no states for 999,999,999,999 of its epochs, such as 0"),
        (lambda record: record["states"].pop("2"), "Complete: there are no states for 1 of its epochs, such as 2"),
        (_states_outside, "Complete: there are states for epochs outside 2 to 2, such as 1"),
        (_no_states, "Complete: there are no states for 2 of its epochs"),
        (_other_offsets, "The input: the source offsets"),
        (_a_state_without_tables, "The states: epoch 1, op0: no such table in the record"),
        (_another_state, "The states: epoch 1, op0: "),
        (_no_replays, "The replays: none are listed"),
        (_without("replays", 0), "The replays: none ran with the recorded number of partitions, 2"),
        (_a_replay_that_stopped, "The replays: replay 2 ends at epoch 1, before the last epoch, 2"),
        (_one_replay_twice, "The replays: their numbers are 1, 1"),
        (_a_replay_that_diverged, "The replays: the record says deterministic, but replay 1 diverged"),
        (_another_result, "The replays: the record says diverged, but no replay did"),
    ],
)
def test_a_forgery_is_detected(
    audited: Path, record: dict[str, Any], change: Callable[[dict[str, Any]], object], message: str
) -> None:
    """Even with matching hashes, the record must be complete and agree with the history."""
    change(record)
    check = ss.check_audit_record(forged(record), audited / "store")
    assert not check.ok
    assert not bool(check)
    assert any(claim.startswith(message) for claim in check.wrong), check.wrong
    assert "do not hold" in repr(check).splitlines()[0]


def test_a_record_of_another_query(audited: Path, record: dict[str, Any]) -> None:
    """A store without the query is refused. A given history is used, and the query is reported as unverified."""
    record["query"]["id"] = "another"
    with pytest.raises(UnknownQueryError, match="does not have the query of the record"):
        ss.check_audit_record(forged(record), audited / "store")
    check = ss.check_audit_record(forged(record), ss.open_store(audited / "store")["counts"])
    assert any(claim.startswith("The query: ") for claim in check.unverified)


_MALFORMED: list[tuple[tuple[Any, ...], Any]] = [
    (("epochs",), [1]),
    (("epochs",), ["one", 2]),
    (("epochs",), [2, 1]),
    (("epochs",), [True, 2]),
    (("epochs",), None),
    (("partitions",), 0),
    (("partitions",), "2"),
    (("query",), []),
    (("query", "id"), 7),
    (("states",), []),
    (("states", "x"), {}),
    (("states", "01"), {}),
    (("states", "-1"), {}),
    (("states", "1"), None),
    (("states", "1", "op0"), 3),
    (("states", "1", "op0", "rows"), -1),
    (("states", "1", "op0", "rows"), "1"),
    (("states", "1", "op0", "fingerprint"), "zz"),
    (("replays",), {}),
    (("replays", 0), None),
    (("replays", 0, "number"), "1"),
    (("replays", 0, "upto"), None),
    (("replays", 0, "result"), "fine"),
    (("result",), ["deterministic"]),
    (("chain",), 5),
    (("checksum",), None),
    (("source_offsets",), 1.5),
    (("made_by",), "me"),
    (("started",), "yesterday"),
    (("format",), [2]),
]


@pytest.mark.parametrize(("field", "value"), _MALFORMED)
def test_a_malformed_field_is_named(audited: Path, record: dict[str, Any], field: tuple[Any, ...], value: Any) -> None:
    """The error names the field, for every invalid value."""
    changed = copy.deepcopy(record)
    parent = changed
    for name in field[:-1]:
        parent = parent[name]
    parent[field[-1]] = value
    with pytest.raises(InvalidArgumentError, match=str(field[0])):
        ss.check_audit_record(changed, audited / "store")


@pytest.mark.parametrize("name", ["epochs", "states", "replays", "query", "result", "checksum", "partitions"])
def test_a_missing_field_is_named(audited: Path, record: dict[str, Any], name: str) -> None:
    """The error is that of a malformed field."""
    del record[name]
    with pytest.raises(InvalidArgumentError, match=name):
        ss.check_audit_record(record, audited / "store")


def test_a_record_that_is_not_json_is_refused(audited: Path, record: dict[str, Any]) -> None:
    """A mapping must be serializable as JSON."""
    with pytest.raises(InvalidArgumentError, match="cannot be read"):
        ss.check_audit_record({**record, "made_by": {"streamstate": object()}}, audited / "store")


def test_a_duplicate_epoch_is_refused(audited: Path, tmp_path: Path, record: dict[str, Any]) -> None:
    """Python's JSON parser would silently use the last one."""
    text = json.dumps(record).replace('"states": {', '"states": {"1": {}, ', 1)
    (tmp_path / "twice.json").write_text(text)
    with pytest.raises(InvalidArgumentError, match="'1' twice"):
        ss.check_audit_record(tmp_path / "twice.json", audited / "store")


@pytest.mark.parametrize("text", ["", "{}", "[]", "no JSON", "[" * 100_000, '{"kind": 1}', "9" * 5_000])
def test_other_files_are_refused(audited: Path, tmp_path: Path, text: str) -> None:
    """The error names the file."""
    (tmp_path / "some.json").write_text(text)
    with pytest.raises(InvalidArgumentError, match=r"some\.json"):
        ss.check_audit_record(tmp_path / "some.json", audited / "store")


def test_a_record_that_cannot_be_checked_is_refused(audited: Path, record: dict[str, Any], tmp_path: Path) -> None:
    """Missing files, other formats, records of earlier versions and histories without the epochs are refused."""
    refused: list[tuple[Any, str]] = [
        (tmp_path / "none.json", "cannot be read"),
        ({**record, "format": 3}, "format"),
        ({**record, "kind": "streamstate determinism certificate", "format": 1}, "earlier version"),
    ]
    for invalid, message in refused:
        with pytest.raises(InvalidArgumentError, match=message):
            ss.check_audit_record(invalid, audited / "store")
    with pytest.raises(UnknownEpochError, match="lacks epochs"):
        ss.check_audit_record({**record, "states": {**record["states"], "9": {}}}, audited / "store")


def test_a_store_without_the_query_is_refused(record: dict[str, Any], tmp_path: Path) -> None:
    """The error says that the store does not have the record's query."""
    write(tmp_path, [{"a": 1}])
    with pytest.raises(StreamStateError, match="does not have the query of the record"):
        ss.check_audit_record(record, tmp_path)
