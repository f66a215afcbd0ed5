"""Decisions as a store has them: as a table, in words, on the timeline, in the status and on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from deltalake import DeltaTable

import streamstate as ss
from streamstate.command_line.program import main
from streamstate.errors import DamagedStoreError
from streamstate.launch.query_status import QueryStatus, status_line
from streamstate.snapshots.checkpoint.bindings import Binding, Version, relation_of
from streamstate.snapshots.store.control_table import (
    ACTED,
    ADMISSION,
    DECISION,
    POLICY,
    SHEDDING,
    Control,
    ControlRow,
    in_force,
    policy_words,
)
from streamstate.snapshots.store.delta.commits import Handle
from streamstate.snapshots.store.entries import Entry
from streamstate.snapshots.store.layout import CAPTURED, Layout
from streamstate.snapshots.store.manifest import Manifest
from streamstate.snapshots.store.registry import register
from streamstate.widgets.timeline.variable_marks import VariableMarks

TEXT = json.dumps({"latency": 5.0, "may_drop": 0.2})
WHY, NEEDS = "Epochs take 9 s.", "8 cores."
NUMBERS = "rate 812.5, fixed seconds 0.5"
INPUTS = {"epoch": 2, "at": 1.7e9, "rate": 812.5, "fixed_seconds": 0.5, "kept_promise": 0}
BROKEN = ControlRow(DECISION, 2, 0, SHEDDING, 1.0, 0.25, holds=False, reason=WHY, needs=NEEDS, inputs=INPUTS)


def committed(control: Control, *rows: ControlRow) -> None:
    """Append rows."""
    for row in rows:
        control.append(lambda _known, row=row: row)  # type: ignore[misc]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with a query of six epochs, the last two of which are bound to what its second decision set."""
    layout = Layout.at(tmp_path)
    register(layout, "q", "id", str(tmp_path.parent / "checkpoint"))
    level = ss.shared(tmp_path, "q_level", "bigint", init=10_000)
    limit = ControlRow(DECISION, 1, 0, ADMISSION, None, 500.0, holds=True, reason="Short epochs.")
    undone = ControlRow(DECISION, 0, 0, SHEDDING, 1.0, 0.5, holds=True, reason="It never acted.")
    committed(Control(layout, "q"), ControlRow(POLICY, -1, inputs={"policy": TEXT}), undone, limit)
    committed(Control(layout, "q"), ControlRow(ACTED, 3, 0, ADMISSION, None, 500.0, inputs={"decision": 2}), BROKEN)
    level.log.set(5000, "decision 1", None)
    level.log.set(2500, "decision 4", None)
    level.record()
    versions = [0, 0, 0, 2, 2, 2]
    offsets = [json.dumps([Binding({"q_level": Version(number)}, "", "").offset()]) for number in versions]
    rows = [Entry(epoch, CAPTURED, offsets=text, tables={}) for epoch, text in enumerate(offsets)]
    Manifest(layout, "q").append(rows, "id/_epochs")
    return tmp_path


@pytest.fixture(autouse=True)
def level_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests' level is a number, under a name of its own."""
    monkeypatch.setattr("streamstate.state_inspect.control.LEVEL", "_level")
    monkeypatch.setattr("streamstate.widgets.timeline.variable_marks.LEVEL", "_level")


def test_decisions_say_when_they_acted(store: Path) -> None:
    """A level acts in the first epoch that is bound to its version; one that was overtaken never did."""
    found = ss.open_store(store)["q"].decisions()
    assert found["lever"].tolist() == [SHEDDING, ADMISSION, SHEDDING]
    assert found["acted"].isna().tolist() == [True, False, False]
    assert found["acted"].tolist()[1:] == [3, 3]
    assert found["epoch"].tolist() == [0, 1, 2]
    assert found["holds"].tolist() == [True, True, False]


def test_a_query_without_a_policy_has_no_decisions(store: Path) -> None:
    """The columns are there all the same."""
    register(Layout.at(store), "other", "other id", str(store.parent / "checkpoint2"))
    history = ss.open_store(store)["other"]
    assert history.decisions().empty
    assert "acted" in history.decisions()
    assert history.policies().empty


def test_why_policy_tells_an_epochs_levels(store: Path) -> None:
    """Which policy and levels were in force, which decisions set them, and what these follow from."""
    history = ss.open_store(store)["q"]
    assert str(history.why_policy(2)).splitlines() == [
        "Epoch 2 ran under the policy latency=5.0, may_drop=0.2, declared before the first epoch.",
        "It kept all rows.",
        "Its sources had no other limit than their options'.",
    ]
    why = history.why_policy(4)
    assert (why.kept, why.rows) == (0.25, 500)
    assert str(why).splitlines()[1:] == [
        "It kept 25% of the unprotected rows.",
        "It read at most 500 rows.",
        "Decision 2 set the admission, after epoch 1: Short epochs.",
        f"Decision 4 set the shedding, after epoch 2: {WHY} What would hold it: {NEEDS} It follows from: {NUMBERS}.",
    ]
    assert "It kept 25% of the unprotected rows." in why._repr_html_()


def test_the_command_prints_the_same(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In words, and as JSON."""
    assert main(["why-policy", str(store), "q", "4"]) == 0
    assert "Decision 4 set the shedding" in capsys.readouterr().out
    assert main(["why-policy", str(store), "q", "4", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kept"] == 0.25


def test_the_timeline_marks_decisions_instead_of_versions_of_the_level(store: Path) -> None:
    """Each at the first epoch that it applied to."""
    marks = VariableMarks(ss.open_store(store)["q"].recorded).all()
    assert [str(mark) for mark in marks] == [
        "admission: all → 500 rows an epoch from epoch 3 on.",
        "shedding: 100% → 25% kept from epoch 3 on.",
    ]


def test_the_status_says_that_a_promise_is_broken(store: Path) -> None:
    """With what would hold it; a decision under an earlier policy does not count."""
    rows = Control(Layout.at(store), "q").rows()
    assert policy_words(in_force(rows)) == "promise broken: 8 cores."
    newer = ControlRow(POLICY, 5, inputs={"policy": TEXT}, number=9)
    assert policy_words(in_force([*rows, newer])) == "policy holds"
    assert policy_words(in_force([*rows, ControlRow(POLICY, 5, inputs={"policy": ""}, number=9)])) is None
    status = QueryStatus("q", "running", 5, 0, None, None, 3, "running", None, policy="promise broken: 8 cores.")
    assert status_line(status) == "q is running: captured up to epoch 5, 3 rows of state, promise broken: 8 cores."


def test_any_reader_of_delta_tables_reads_the_rows(store: Path) -> None:
    """Under their names; what one writer numbered, another one does not number again."""
    table = DeltaTable(store / "q" / "_control").to_pyarrow_table().sort_by("number").to_pylist()
    assert [(row["number"], row["kind"]) for row in table] == [
        (0, POLICY),
        (1, DECISION),
        (2, DECISION),
        (3, ACTED),
        (4, DECISION),
    ]
    first, second = Control(Layout.at(store), "q"), Control(Layout.at(store), "q")
    assert len(first.rows()) == len(second.rows()) == 5
    committed(first, BROKEN)
    committed(second, BROKEN)
    committed(first, BROKEN)
    assert [row.number for row in second.rows()] == list(range(8))
    assert first.rows() == second.rows()


def test_rows_stay_when_files_are_merged(store: Path) -> None:
    """Those of other writers are seen after it."""
    control = Control(Layout.at(store), "q")
    committed(control, *[BROKEN] * 80)
    control.merge_files()
    assert [row.number for row in control.rows()] == list(range(85))
    assert len(Handle(Layout.at(store).control("q")).newest().file_uris()) < 40
    committed(control, BROKEN)
    assert control.rows()[-1].number == 85


def test_rows_that_are_none_are_refused(store: Path) -> None:
    """The error says what to do."""
    committed(Control(Layout.at(store), "q"), ControlRow("later kind", 5))
    assert Control(Layout.at(store), "q").rows()[-1].kind == "later kind"
    table = DeltaTable(store / "q" / "_control").to_pyarrow_table().slice(0, 1)
    from streamstate.snapshots.store.delta import append_once

    damaged = table.set_column(10, table.schema.field(10), [["{no"]])
    append_once(Layout.at(store).control("q"), "another", 1, lambda _: damaged)
    with pytest.raises(DamagedStoreError, match="none of streamstate's"):
        Control(Layout.at(store), "q").rows()


def test_relations_of_levels_are_read_by_their_names(store: Path) -> None:
    """What set a version is in its history."""
    assert ss.open_store(store)[relation_of("q_level")].epochs()["run_id"].tolist()[1:] == [
        "set decision 1",
        "set decision 4",
    ]
