"""The incident room: the judge of what a learner says, the proofs of a fix, and each incident from end to end."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
import numpy as np
import pandas as pd
import pytest
from notebooks.running import TUTORIALS, latest_run, output_of, shows_no_noise

from streamstate.tutorials.incidents.incident import CAUSES, FILES, Incident
from streamstate.tutorials.incidents.judge import Diagnosis, diagnosis
from streamstate.tutorials.incidents.kinds import KINDS, Seed, bad_deploy, incident_of
from streamstate.tutorials.incidents.proof import Departures, Key, batch, difference, gives_batch
from streamstate.tutorials.incidents.room import IncidentRoom

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Kind = Callable[[Seed], Incident]

EPOCHS = [0, 1, 3, 4, 5, 6, 7, 8, 9, 10]
"""Epoch 2 had no input."""
LEARNER = "Ada"
NOTEBOOK = "incident_room"

of_each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


@pytest.fixture(autouse=True)
def progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Progress of its own for each test."""
    path = tmp_path / "progress.json"
    monkeypatch.setenv("STREAMSTATE_PROGRESS", str(path))
    return path


def _judge(kind: Kind) -> Diagnosis:
    return diagnosis(incident_of(LEARNER, kind), EPOCHS)


def _examples(kind: Kind, part: str) -> dict[str, Any]:
    """For each message to a part, an answer that gets it."""
    judge, said = _judge(kind), incident_of(LEARNER, kind).said.get(part, {})
    if part != "key":
        return {wrong.message: wrong.answer for wrong in judge.parts[part].wrong}
    named = {message: name.partition("=") for name, message in said.items()}
    return {message: {column: value or "nobody's"} for message, (column, _, value) in named.items()}


def test_a_name_decides_which_incident(progress: Path) -> None:
    """The same name gives the same one, and a class gets all six, at different epochs and on different days."""
    assert repr(incident_of(" ada ")) == repr(incident_of("Ada"))
    incidents = [incident_of(f"learner {number}") for number in range(60)]
    assert {incident.cause for incident in incidents} == set(CAUSES)
    assert len({incident.at for incident in incidents}) == 3
    assert len({incident.first_day for incident in incidents}) > 20


@of_each_kind
def test_untouched_it_is_not_answered(kind: Kind) -> None:
    """The judge says what is missing, and no more."""
    untouched = dict.fromkeys(("epoch", "table", "key", "cause"), ...)
    answer = _judge(kind).check(untouched)
    assert answer.mark == "waiting"
    assert answer.lines == ["Replace the ... of epoch, table, key, cause, and run this cell again."]
    assert "of key, and" in _judge(kind).check(_judge(kind).solution() | {"key": None}).lines[0]


@of_each_kind
def test_what_happened_is_right(kind: Kind) -> None:
    """All four parts are."""
    judge = _judge(kind)
    answer = judge.check(judge.solution())
    assert answer.mark == "right"
    assert answer.table is not None
    assert [row[2:] for row in answer.table.rows] == [["✓", ""]] * 4


@of_each_kind
@pytest.mark.parametrize("part", ["epoch", "table", "key", "cause"])
def test_each_typical_wrong_answer_gets_its_own_message(kind: Kind, part: str) -> None:
    """The other parts stay right, and the message does not give the answer away."""
    judge = _judge(kind)
    right = judge.solution()
    for message, wrong in _examples(kind, part).items():
        answer = judge.check(right | {part: wrong})
        assert answer.title == "Not yet: 3 of 4 parts are right."
        assert answer.table is not None
        rows = {row[0]: row for row in answer.table.rows}
        assert rows[part][2:] == ["✗", message]
        secrets = right["key"].values() if part == "key" else [str(right[part])]
        assert not any(secret in message for secret in secrets)


@of_each_kind
def test_the_epoch_in_which_it_was_noticed_and_a_victim_are_typical(kind: Kind) -> None:
    """There are messages for the epoch, the key, and each other cause."""
    incident = incident_of(LEARNER, kind)
    epochs, keys, causes = (_examples(kind, part) for part in ("epoch", "key", "cause"))
    assert EPOCHS[incident.noticed] in epochs.values()
    assert keys
    assert set(causes.values()) == set(CAUSES) - {incident.cause}
    assert len({*epochs, *keys, *causes}) == len(epochs) + len(keys) + len(causes) >= 3
    assert len(incident.wrong_fixes) == len(incident.hints) == 3


@of_each_kind
def test_any_other_answer_is_wrong_and_tells_nothing(kind: Kind) -> None:
    """What is right does not appear."""
    judge, key = _judge(kind), incident_of(LEARNER, kind).keys[0]
    column = next(iter(key))
    other = next(cause for cause in CAUSES if cause != judge.solution()["cause"])
    table = judge.solution()["table"]
    answer = judge.check({"epoch": 999, "table": table, "key": {column: "x"}, "cause": other})
    assert answer.title == "Not yet: 1 of 4 parts are right."
    assert not any(value in repr(answer) for value in key.values())


def test_a_key_may_be_a_window_or_a_time() -> None:
    """It is named as tables of the state show it; what is no key of the query is not judged."""
    judge = _judge(KINDS[0])
    right = judge.solution()
    day = datetime.fromisoformat(f"{right['key']['day']}T05:00:00+00:00")
    for key in ({"window": {"start": pd.Timestamp(day)}}, {"day": day.astimezone(UTC).date(), "carrier": "UA"}):
        assert judge.check(right | {"key": key}).mark == "right"
    no_keys: list[Any] = [{"tailnum": "N1"}, {1: {}}, {}, "UA"]
    for no_key in no_keys:
        answer = judge.check(right | {"key": no_key, "epoch": "seven"})
        assert answer.mark == "waiting"
        assert answer.lines == [
            "epoch: please give a number.",
            "key: please give a dictionary with any of the columns 'day', 'carrier', 'origin'.",
        ]


def _departures(day: int) -> pd.DataFrame:
    """Departures of three airports, three carriers and sixty aircraft in a day."""
    number = np.arange(180)
    return pd.DataFrame(
        {
            "scheduled": pd.Timestamp("2013-01-02 12:00", tz="UTC") + pd.to_timedelta(day * 1440 + number, unit="min"),
            "carrier": np.array(["EV", "B6", "DL", "MQ", "9E"])[number % 5],
            "flight": number.astype("int32"),
            "tailnum": [f"N{one % 60}" for one in number],
            "origin": np.array(["EWR", "JFK", "LGA"])[number % 3],
            "dest": "ATL",
            "dep_delay": 1.0,
        }
    )


@of_each_kind
def test_nothing_is_wrong_before_it_begins(kind: Kind) -> None:
    """Up to its file the input is as it should be; from then on, the input or the code is not."""
    days = [_departures(day) for day in range(FILES)]
    incident = incident_of(LEARNER, kind)
    same = [_same(*files) for files in zip(incident.arriving(days), incident.right(days), strict=True)]
    assert len(same) == FILES
    assert all(same[: incident.at])
    assert (incident.code[0] is not incident.code[1]) == (incident.cause in ("bad deploy", "nondeterminism"))
    touched = incident.cause in ("repeated file", "stuck watermark", "hot key")
    assert same[incident.at] == (not touched)


def _same(arriving: pd.DataFrame, right: pd.DataFrame) -> bool:
    return arriving.reset_index(drop=True).equals(right.reset_index(drop=True))


@pytest.mark.parametrize(
    ("found", "fault"),
    [
        ({("UA",): 2, ("AA",): 1}, ""),
        ({("UA",): 4, ("AA",): 1}, "the `departures` of UA are 4. They should be 2."),
        ({("UA",): 2}, "the state has no row for AA, which just came."),
        ({("UA",): 2, ("AA",): 1, ("DL",): 3}, "the state still has DL, which came 4 files earlier: it leaks."),
        ({("UA",): 2, ("AA",): 1, ("??",): 1}, "the `departures` of ?? are 1. They should be 0."),
    ],
)
def test_a_state_is_compared_with_a_batch(found: dict[Key, int], fault: str) -> None:
    """Older keys may have left it, those of the newest file may not, and none stays for ever."""
    right: Departures = {("DL",): (3, 0), ("UA",): (2, 4), ("AA",): (1, 4), ("MQ",): (1, 2)}
    assert difference(found, right, 4) == fault


def test_a_batch_counts_by_day_or_aircraft() -> None:
    """Each key has the count of its newest file."""
    days = [_departures(day) for day in range(2)]
    assert batch(days, "board")["2013-01-03", "EV", "EWR"] == (12, 1)
    assert batch(days, "board")["2013-01-02", "EV", "EWR"] == (12, 0)
    assert batch(days, "aircraft")["N7",] == (3, 1)


def test_the_notebook_is_untouched_and_tells_nothing() -> None:
    """Name, answers and fix are the learner's; the instructor's guide has each cause."""
    cells = nbformat.read(TUTORIALS / f"{NOTEBOOK}.ipynb", as_version=4).cells
    text = "\n".join(cell.source for cell in cells)
    assert "NAME = ...\n" in text
    assert "room.submit(epoch=..., table=..., key=..., cause=...)" in text
    assert not any(cause in text for cause in CAUSES)
    assert not any(kind.__name__ in text for kind in KINDS)
    guide = (TUTORIALS.parent / "docs" / "guides" / "teaching.md").read_text(encoding="utf-8")
    assert all(f"`{cause}`" in guide for cause in CAUSES)


@pytest.mark.slow
@pytest.mark.notebook
@pytest.mark.timeout(1800)
def test_the_untouched_notebook_builds_an_incident_and_waits() -> None:
    """Run All works, and nothing is answered."""
    shown = latest_run(NOTEBOOK)
    assert output_of(shown, "room = IncidentRoom").startswith("i You are on call.")
    assert output_of(shown, "room.submit(").startswith("… Not answered yet.")
    assert output_of(shown, "room.prove(").startswith("… This waits")
    assert output_of(shown, "room.progress()").startswith("i 0 of 2 right.")
    assert shows_no_noise(shown)


@pytest.mark.slow
@pytest.mark.notebook
def test_an_incident_from_end_to_end(spark: SparkSession, tmp_path: Path, progress: Path) -> None:
    """It is built once; a fix is checked once the cause is found; the right one passes, and no other."""
    incident = incident_of(LEARNER, bad_deploy)
    room = IncidentRoom(LEARNER, incident=incident, folder=tmp_path)
    assert repr(room).startswith("i You are on call.")
    assert _tells_nothing(tmp_path)
    assert room.prove(lambda: None).title.startswith("This waits")
    _, *answer = _judge(bad_deploy).solution().items()
    assert room.submit(epoch=room._epochs[incident.at], **dict(answer)).mark == "right"
    assert room.prove().mark == room.prove(lambda: None).mark == "waiting"
    assert room.prove(room.production).lines[0].startswith("At epoch 0, ")  # it is today's code

    again = IncidentRoom(f" {LEARNER.upper()}", incident=incident, folder=tmp_path)
    assert again.history.captured() == room.history.captured()
    assert again.prove(lambda: incident.solution(again.departures())).mark == "right"
    assert "2 of 2 right." in repr(again.progress())
    assert [record["right"] for record in next(iter(json.loads(progress.read_text()).values())).values()] == [True] * 2


@pytest.mark.exhaustive
@of_each_kind
def test_each_incident_from_end_to_end(spark: SparkSession, tmp_path: Path, kind: Kind) -> None:
    """It begins where the judge says; its solution is proved, and each typical wrong fix gets its message."""
    incident = incident_of(LEARNER, kind)
    room = IncidentRoom(LEARNER, incident=incident, folder=tmp_path)
    begin = room._epochs[incident.at]
    assert 8 <= len(room.history.captured()) <= 12
    assert _begins(room, incident) == begin
    assert _tells_nothing(tmp_path)
    answer = diagnosis(incident, room._epochs).solution()
    assert room.submit(**answer).mark == "right"
    faults = []
    for build, message in incident.wrong_fixes:
        proved = room.prove(lambda build=build: build(room.departures()))
        assert proved.mark == "wrong"
        assert message in proved.lines[0]
        faults.append(proved.lines[0])
    assert len(set(faults)) == len(faults)
    right = room.prove(lambda: incident.solution(room.departures()))
    assert right.mark == "right", right


def _begins(room: IncidentRoom, incident: Incident) -> int:
    """The first epoch whose state is not what it should be."""
    if incident.cause == "leak":
        first = room.history.first("leaves = 0", table="op0_aircraft")
        assert first is not None
        return first
    played = room._compared(room.history, lambda epoch: room.checkpoint.audit(room.production, epochs=(epoch, epoch)))
    return int(gives_batch(played).split(",")[0].removeprefix("At epoch "))


def _tells_nothing(folder: Path) -> bool:
    """No path below a room's folder names a kind or a cause."""
    words = {word for name in [*CAUSES, *(kind.__name__ for kind in KINDS)] for word in name.replace("_", " ").split()}
    paths = {str(path.relative_to(folder)) for path in folder.rglob("*")}
    long = {word for word in words if len(word) > 3} - {"file"}  # an id in hexadecimal digits may contain "bad"
    return not any(word in path for word in long for path in paths)
