"""A certificate says what was audited; somebody else checks it, and notices what was changed in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import streamstate as ss
from debugging.test_audit import plain  # noqa: F401 (a fixture)
from streamstate.snapshots.errors import InvalidArgumentError, UnknownEpochError, UnknownQueryError


@pytest.fixture(scope="module")
def audited(spark: SparkSession, plain: tuple[Path, object], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store, a second one that was captured by itself, and a certificate."""
    made, frame = plain
    folder = tmp_path_factory.mktemp("certificate")
    audit = ss.audit(frame, made / "checkpoint", epochs=(1, 2), replays=1, store=folder / "store", spark=spark)  # type: ignore[arg-type]
    audit.save(folder / "one.json")
    ss.capture(made / "checkpoint", folder / "theirs", "sums", spark=spark)
    return folder


def test_somebody_else_checks_it(audited: Path) -> None:
    """Against a history that they captured themselves; neither Spark nor the replays are needed."""
    for store in (audited / "theirs", ss.open_store(audited / "theirs"), ss.open_store(audited / "theirs")["sums"]):
        check = ss.check_certificate(audited / "one.json", store)
        assert check.ok
        assert (check.result, check.epochs) == ("deterministic", (1, 2))
        assert "every state is as it says" in repr(check)


def test_it_says_what_was_done(audited: Path) -> None:
    """Versions, the query, the epochs, each replay, and every table's fingerprint at every epoch."""
    held = json.loads((audited / "one.json").read_text())
    assert (held["format"], held["epochs"], held["result"]) == (1, [1, 2], "deterministic")
    assert {*held["made_by"]} == {"streamstate", "spark", "python", "java"}
    assert [(one["partitions"], one["result"]) for one in held["replays"]] == [(2, "same"), (3, "same")]
    frame = ss.open_store(audited / "theirs")["sums"].fingerprints(epochs=[1, 2])
    told = [(int(e), table, one["fingerprint"]) for e, of in held["states"].items() for table, one in of.items()]
    assert told == [*frame[["epoch", "table", "fingerprint"]].itertuples(index=False, name=None)]
    assert len((audited / "one.json").read_text()) < 5_000


def test_a_changed_certificate_is_noticed(audited: Path) -> None:
    """Any word of it; also where whoever changed it wrote a new checksum, because the states tell."""
    held = json.loads((audited / "one.json").read_text())
    assert not ss.check_certificate({**held, "result": "diverged"}, audited / "theirs").intact
    held["states"]["1"]["op0"]["fingerprint"] = "0" * 32
    check = ss.check_certificate(held, audited / "theirs")
    assert (check.intact, check.matches, check.ok) == (False, False, False)
    assert check.differences[0].startswith("epoch 1, op0")
    from streamstate.debugger.audit.certificate import _chain, checksum

    held["chain"] = _chain(held["states"])
    held["checksum"] = checksum(held)
    check = ss.check_certificate(held, audited / "theirs")
    assert (check.intact, check.ok) == (True, False)
    assert "of other states" in repr(check)


def test_what_is_none_is_refused(audited: Path, tmp_path: Path, store: ss.Store) -> None:
    """No file, no certificate, a newer format, another store, a history without the epochs."""
    held = json.loads((audited / "one.json").read_text())
    (tmp_path / "some.json").write_text("{}")
    for wrong in (tmp_path / "some.json", tmp_path / "none.json", {**held, "format": 2}):
        with pytest.raises(InvalidArgumentError):
            ss.check_certificate(wrong, audited / "theirs")
    with pytest.raises(UnknownQueryError, match="no query with the id"):
        ss.check_certificate(held, store)
    with pytest.raises(UnknownEpochError, match="lacks epochs"):
        ss.check_certificate({**held, "states": {**held["states"], "9": {}}}, audited / "theirs")
