"""``Checkpoint.check``: the report, the rehearsal, upgrades of Spark, the magic and the command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from notebook_shell import Shell, bare_shell, shell, shown_at_once  # noqa: F401 (fixtures)
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from recorded.queries import EPOCHS, PROVIDERS, frame, query, recorded, run
from recorded.queries import add_input as add_epoch
from recorded.unpacked import VERSIONS, copied, unpacked
from sampling import sampled

import streamstate as ss
from code_check.changes import BASES, CHANGES, Inputs, total
from code_check.started import Started, add_input, settings
from streamstate.command_line import main
from streamstate.errors import CheckpointError, EpochGoneError, InvalidArgumentError, UnknownQueryError
from streamstate.operations.code_check import KINDS, Finding
from streamstate.operations.code_check.schema_changes import StateSchemas, compared_columns
from streamstate.reports import CheckReport

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "checking_changes.md"
UPGRADES = [f"{version} {provider} {name}" for version in VERSIONS for name, provider in recorded(version)]


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    """The bytes and the modification time of all files."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def test_the_report_and_the_checkpoint(started: Started) -> None:
    """The report is false, readable, escaped and complete; nothing is written to the checkpoint."""
    checkpoint = started.checkpoint("aggregate")
    before = contents(checkpoint)
    filtered = BASES["aggregate"].build(started.inputs).where("n > 2")
    report = ss.Checkpoint(checkpoint).check(filtered, store=ss.open_store(started.store))
    assert contents(checkpoint) == before
    assert not report
    assert (report.epoch, report.replayed) == (2, ())
    assert [finding.kind for finding in report.findings] == ["result"]
    assert repr(report).startswith("CheckReport: this code starts, but does not mean the same, from epoch 2 of ")
    assert "± changed (result): " in repr(report)
    assert "<strong>± changed (result)</strong>" in report._repr_html_()
    html = CheckReport("<i>", 1, (Finding("condition", "<b>", "<b>", "<b>"),))._repr_html_()
    assert "<b>" not in html
    assert "<i>" not in html


def test_columns_that_differ_are_side_by_side() -> None:
    """All columns of the state, in their order; a state that is the same is left out."""
    place, same = (0, "default", "default"), (1, "default", "default")
    key = [("k", "string", True), ("w", {"type": "struct", "fields": []}, True)]
    before = StateSchemas({}, {at: {"key": key, "value": [("max", "long", True)]} for at in (place, same)}, {})
    value = [("min", "integer", False), ("<b>", "long", True)]
    after = StateSchemas({}, {**before.columns, place: {"key": key, "value": value}}, {})
    columns = compared_columns(before, after)
    assert [pair.how for pair in columns["op0"]] == [
        *("", ""),
        "another name, another type, is never null now",
        "only in this code",
    ]
    html = CheckReport("checkpoint", 1, (), columns=columns)._repr_html_()
    assert '<td>max</td><td class="type faint">bigint</td><td class="right">min</td>' in html
    assert "<b>" not in html
    assert list(columns) == ["op0"]


def test_what_cannot_be_checked(started: Started, tmp_path: Path) -> None:
    """Arguments, checkpoints and stores that do not fit are refused with the reason."""
    checkpoint, build = started.checkpoint("aggregate"), BASES["aggregate"].build
    with pytest.raises(InvalidArgumentError, match="Invalid mode 'often'"):
        ss.Checkpoint(checkpoint).check(build(started.inputs), mode="often")
    with pytest.raises(InvalidArgumentError, match="not streaming"):
        ss.Checkpoint(checkpoint).check(started.spark.range(3))
    with pytest.raises(UnknownQueryError, match="does not have the query with the id"):
        ss.Checkpoint(checkpoint).check(build(started.inputs), store=tmp_path / "other")
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "metadata").write_text('{"id":"1"}')
    with pytest.raises(CheckpointError, match="no committed epoch"):
        ss.Checkpoint(tmp_path / "new").check(build(started.inputs))


@pytest.mark.slow
def test_a_rehearsal(started: Started, tmp_path: Path) -> None:
    """The last epochs are run again in a fork, which is removed; the first epoch with another state is reported."""
    checkpoint, inputs = started.checkpoint("aggregate"), started.inputs
    same = ss.Checkpoint(checkpoint).check(lambda: BASES["aggregate"].build(inputs), replay=2)
    assert (same.ok, same.replayed) == (True, (1, 2))
    build = CHANGES["max(v) to max(2 * v)"].build
    assert build is not None
    report = ss.Checkpoint(checkpoint).check(lambda: build(inputs), replay=5)
    differs = next(finding for finding in report.findings if finding.kind == "replay_differs")
    assert "In epoch 1, run again with this code, op0 differs" in differs.change
    assert {finding.kind for finding in report.findings} >= {"replay_shorter", "replay_differs"}
    add_input(tmp_path, 0)
    built = BASES["aggregate"].build(Inputs(started.spark, tmp_path))
    started.run(built, tmp_path / "checkpoint", "update")
    with pytest.raises(EpochGoneError, match="has only epoch 0"):
        ss.Checkpoint(tmp_path / "checkpoint").check(built, replay=1)


@pytest.mark.exhaustive
def test_a_rehearsal_finds_changed_python_code(started: Started) -> None:
    """No comparison of plans can find it."""
    checkpoint = started.checkpoint("processor")
    report = ss.Checkpoint(checkpoint).check(lambda: total(times=2)(started.inputs), replay=1)
    assert "replay_differs" in [finding.kind for finding in report.findings]


@pytest.mark.slow
@pytest.mark.parametrize("recording", sampled(UPGRADES, 1))
def test_an_upgrade_of_spark(spark: SparkSession, tmp_path: Path, recording: str) -> None:
    """The verdict on a checkpoint of an earlier Spark is what happens when the query goes on with this one."""
    version, provider, name = recording.split()
    folder = unpacked(version, tmp_path)
    checkpoint = folder / provider / name
    with settings(spark, {**PROVIDERS[provider], "spark.sql.shuffle.partitions": "2"}):
        report = ss.Checkpoint(checkpoint).check(lambda: frame(spark, name, folder / "input"), mode=query(name).mode)
        try:
            # Without new input, nothing would be planned.
            add_epoch(folder / "input", EPOCHS)
            run(spark, name, folder / "input", copied(checkpoint, tmp_path / "copy"))
            went_on = True
        except PySparkException:
            went_on = False
    assert report.ok == went_on, report
    assert "spark_version" in [finding.kind for finding in report.findings]


@pytest.mark.slow
def test_a_join_of_spark_3(spark: SparkSession, tmp_path: Path) -> None:
    """A join that began under Spark 3.5 does not go on, because this Spark infers another nullability."""
    folder = unpacked("3.5", tmp_path)
    report = ss.Checkpoint(folder / "RocksDB" / "inner-join").check(
        lambda: frame(spark, "inner-join", folder / "input"), mode="append"
    )
    assert [finding.kind for finding in report.findings if finding.level == "refused"] == ["nullability"], report


@pytest.mark.slow
def test_the_magic(shell: Shell, started: Started) -> None:
    """``%stream check`` finds the checkpoint, the mode and the recorded plan by the query's name."""
    started.checkpoint("aggregate")
    shell.names["swapped"] = lambda: (CHANGES["keys swapped"].build or BASES["aggregate"].build)(started.inputs)
    shell.run(f"%config StreamState.store = '{started.store}'")
    report = shell.run("%stream check aggregate swapped -o report")
    assert shell.names["report"] is report
    assert [finding.kind for finding in report.findings if finding.level != "note"] == ["key_expression", "result"]
    assert "swapped" in shell.completions("%stream check aggregate sw|")


JOB = """
from pyspark.sql import SparkSession

def build():
    spark = SparkSession.builder.getOrCreate()
    reader = spark.readStream.schema("k string, c string, v long, w long, t timestamp").option("maxFilesPerTrigger", 1)
    return reader.parquet({folder!r}).groupBy("k", {key!r}).agg({{"v": "max", "*": "count"}})
"""


def test_the_command(
    started: Started, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``streamstate check`` exits with 0 if the code goes on, and with 1 if not; code comes from a file or a module."""
    checkpoint = started.checkpoint("aggregate")
    for name, key in (("good_job", "c"), ("bad_job", "w")):
        text = JOB.format(folder=str(started.inputs.folder / "one"), key=key)
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    assert main(["check", str(checkpoint), f"{tmp_path}/good_job.py:build", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["ok"], said["epoch"], said["findings"][0]["level"]) == (True, 2, "note")
    monkeypatch.chdir(tmp_path)
    assert main(["check", str(checkpoint), "bad_job:build"]) == 1
    assert "refused (key_schema)" in capsys.readouterr().out
    assert main(["check", str(checkpoint), "bad_job:bild"]) == 1
    assert "bad_job has no function bild.\nIt has: build." in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["check", str(checkpoint), "bad_job"])


def test_the_guide_lists_every_kind_of_finding() -> None:
    """With its level, in the order of the levels."""
    rows = [line.split("|")[1:3] for line in GUIDE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    assert {kind.strip().strip("`"): level.strip() for kind, level in rows} == KINDS


def test_the_changes_cover_the_kinds() -> None:
    """Each kind that a comparison leads to is in the table of changes."""
    covered = {kind for change in CHANGES.values() for kind in (*change.kinds, *change.notes, *(change.no_store or ()))}
    elsewhere = {
        "query_unsupported", "nullability", "refused_by_spark", "replay_failed", "replay_differs", "replay_shorter",
        "topics", "spark_version", "no_recorded_plan", "variable_added", "setting_pinned", "damaged",
        "damaged_unread", "state_unchecked", "input_gone", "source_unreachable", "topics_missing", "topics_lost",
        "records_lost", "records_skipped", "unfinished", "input_uncertain",
    }  # fmt: skip
    assert KINDS.keys() - covered == elsewhere
    assert len(CHANGES) >= 40
