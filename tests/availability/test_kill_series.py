"""Kills and pauses in a row, in one chain of owners; and that the checks of such a series find what they look for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from availability.kill_series import Chain, compare, series


@pytest.mark.exhaustive
def test_a_series_of_kills_and_pauses(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each epoch has one owner, and everything is as in an undisturbed run; the series can be continued."""
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.setenv("TMPDIR", "")
    happened = [*series(tmp_path, 5, seed=3), *series(tmp_path, 3, seed=3)]
    assert [one["round"] for one in happened] == [*range(8)]
    assert compare(Chain(tmp_path, 3), spark)["files"] == happened[-1]["files"]


@pytest.fixture
def chain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Chain:
    """Two epochs, of two owners."""
    for name in ("SPARK_SUBMIT_OPTS", "PYTHONPATH", "TMPDIR"):
        monkeypatch.setenv(name, "")
    chain = Chain(tmp_path, 0)
    for log in ("offsets", "commits"):
        (tmp_path / "checkpoint" / log).mkdir(parents=True)
        for epoch in range(2):
            (tmp_path / "checkpoint" / log / str(epoch)).write_text(f'v1\n{{}}\n{{"logOffset":{epoch}}}')
    for epoch, process in enumerate("ab"):
        (tmp_path / "out" / f"{epoch}-{process}-0.json").write_text(json.dumps([epoch]))
        (tmp_path / "committed" / process).write_text(f"{epoch}\n")
    chain._note_logs()
    _check(chain)
    return chain


def _check(chain: Chain) -> None:
    chain._check_logs()
    chain._check_results()
    chain._check_owners()


def test_a_commit_that_is_written_again_is_found(chain: Chain) -> None:
    """Also with the same contents."""
    file = chain.checkpoint / "commits" / "1"
    draft = file.with_name(".1")
    draft.write_bytes(file.read_bytes())
    draft.rename(file)
    with pytest.raises(AssertionError, match="commits/1 was written again"):
        _check(chain)


def test_results_that_differ_are_found(chain: Chain) -> None:
    """An epoch may be written twice, but not differently."""
    (chain.folder / "out" / "1-a-1.json").write_text(json.dumps([1]))
    _check(chain)
    (chain.folder / "out" / "1-a-2.json").write_text(json.dumps([2]))
    with pytest.raises(AssertionError, match=r"results of \[1\] were written differently"):
        _check(chain)


def test_lost_results_are_found(chain: Chain) -> None:
    """A committed epoch has results."""
    (chain.folder / "out" / "1-b-0.json").unlink()
    with pytest.raises(AssertionError, match="results are missing"):
        _check(chain)


@pytest.mark.parametrize(("epoch", "message"), [(1, "was committed by"), (2, "wrote no results")])
def test_a_second_owner_is_found(chain: Chain, epoch: int, message: str) -> None:
    """It has committed an epoch of the first, or one of which it has written no results."""
    if epoch == 2:
        (chain.folder / "out" / "2-b-0.json").write_text("[]")
        for log in ("offsets", "commits"):
            (chain.checkpoint / log / "2").write_text('v1\n{}\n{"logOffset":2}')
    chain._note_logs()
    with (chain.folder / "committed" / "a").open("a") as file:
        file.write(f"{epoch}\n")
    with pytest.raises(AssertionError, match=message):
        _check(chain)


def test_an_owner_that_comes_back_is_found(chain: Chain) -> None:
    """Once another has committed an epoch, it may commit none."""
    (chain.folder / "out" / "2-a-0.json").write_text("[]")
    for log in ("offsets", "commits"):
        (chain.checkpoint / log / "2").write_text('v1\n{}\n{"logOffset":2}')
    chain._note_logs()
    with (chain.folder / "committed" / "a").open("a") as file:
        file.write("2\n")
    with pytest.raises(AssertionError, match="an owner has come back"):
        _check(chain)
