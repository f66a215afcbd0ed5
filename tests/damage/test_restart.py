"""``next_start`` says whether Spark starts from a checkpoint again: its verdict is what Spark does."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from recorded.restarts import restarts
from recorded.unpacked import VERSIONS, unpacked

from damage.kinds import CASES, KINDS, damaged
from damage.spark import VERDICTS, verdicts
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.damage.next_start import next_start

SPARK = json.loads(VERDICTS.read_text(encoding="utf-8"))
"""Whether Spark starts, by kind of damage and checkpoint."""
USUAL = [(kind, how.where[number % len(how.where)]) for number, (kind, how) in enumerate(KINDS.items())]
"""Each kind of damage once."""
STARTED = CASES[::41]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recorded checkpoints."""
    return restarts(tmp_path_factory.mktemp("restarts"))


def differing(recorded: Path, cases: list[tuple[str, str]]) -> Iterator[str]:
    """The cases in which our verdict is not the one that the table says."""
    for kind, checkpoint in cases:
        how, spark = KINDS[kind], SPARK[kind][checkpoint]
        with tempfile.TemporaryDirectory() as folder:
            found = next_start(CheckpointFiles(damaged(kind, recorded / checkpoint, Path(folder) / "c")))
        expected = True if how.laxer else False if how.stricter else spark
        if how.unknown or (checkpoint.endswith("stateless") and spark):
            expected = False if found.can_restart is False and not spark else None
        if found.can_restart is not expected:
            yield f"{checkpoint}, {kind}: {found.can_restart}, Spark: {spark}; {[*map(str, found.damages)]}"


def test_each_kind_of_damage(recorded: Path) -> None:
    """Once, in one of the checkpoints."""
    assert [*differing(recorded, USUAL)] == []


@pytest.mark.slow
def test_each_kind_of_damage_everywhere(recorded: Path) -> None:
    """In every checkpoint that can have it."""
    assert [*differing(recorded, CASES)] == []


@pytest.mark.parametrize("version", VERSIONS)
def test_no_recorded_checkpoint_is_damaged(version: str, tmp_path: Path) -> None:
    """Of every version of Spark, provider and kind of query."""
    checkpoints = [path.parent for path in unpacked(version, tmp_path).glob("*/*/commits")]
    found = {str(path.relative_to(tmp_path)): next_start(CheckpointFiles(path)) for path in checkpoints}
    assert len(found) > 10
    assert {path: start.damages for path, start in found.items() if not start.can_restart or start.damages} == {}


@pytest.mark.parametrize(
    "cases", [pytest.param(STARTED, marks=pytest.mark.slow), pytest.param(CASES, marks=pytest.mark.exhaustive)]
)
def test_what_is_recorded_of_spark_is_true(spark: SparkSession, tmp_path: Path, cases: list[tuple[str, str]]) -> None:
    """Spark is started on copies. If this fails for a new Spark: ``PYTHONPATH=tests python -m damage.spark``."""
    found = verdicts(spark, cases, tmp_path)
    assert found == {kind: {name: SPARK[kind][name] for name in of_kind} for kind, of_kind in found.items()}


def test_the_table_is_complete() -> None:
    """Spark's verdict is known for each kind of damage, in each checkpoint that can have it; exceptions are few."""
    assert {kind: set(of_kind) for kind, of_kind in SPARK.items()} == {
        kind: {*how.where} for kind, how in KINDS.items()
    }
    assert len(KINDS) > 100
    assert sum(bool(how.laxer or how.stricter or how.unknown) for how in KINDS.values()) == 5
