"""A damaged file is never read as valid: every answer is correct, or an error."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from faults.conftest import FULL, SEED, Processes, Whole
from faults.drawing import Damage, category, draw_damage
from faults.files import faulty
from faults.inspection import Findings
from faults.zygote import Job, Zygote


@pytest.mark.slow
def test_the_stores_have_files_of_every_category(whole: Whole) -> None:
    """Data files, log entries, log checkpoints, and the pointers to them."""
    kinds = {
        category(str(file.relative_to(whole.with_log_checkpoints))) for file in whole.with_log_checkpoints.rglob("*")
    }
    assert kinds >= {"data", "log entry", "log checkpoint", "_last_checkpoint"}


@pytest.mark.slow
def test_answers_of_an_undamaged_store_are_right(zygote: Zygote, whole: Whole, tmp_path: Path) -> None:
    """The questions of the rounds below have right answers, before and after the capture that catches up."""
    shutil.copytree(whole.store, tmp_path / "store")
    ending = zygote.run_one(Job("read_and_capture", _arguments(whole, tmp_path / "store")))
    assert ending.error is None, ending.trace
    assert ending.result["capture"] is None
    for time, epochs in (("before", whole.epochs), ("after", whole.workload.expected.epochs)):
        found = ending.result[time]
        assert (found["wrong"], found["refused"], found["visible"]) == ({}, [], epochs)
        assert found["right"] > 50
    assert faulty(tmp_path / "store", whole.workload.expected) == []


def draw(number: int, whole: Whole) -> list[tuple[Path, Damage]]:
    """Different damages, each with the store that it applies to."""
    random = Random(SEED)
    drawn: dict[tuple[Path, Damage], None] = {}
    while len(drawn) < number:
        store = random.choice([whole.store, whole.with_log_checkpoints])
        drawn[store, draw_damage(random, store)] = None
    return list(drawn)


@pytest.mark.slow
@pytest.mark.timeout(7200 if FULL else 1800)
def test_damage_is_detected(processes: Processes, whole: Whole, tmp_path: Path, figures: list[str]) -> None:
    """Every answer of a damaged store is right or an error, also after a capture into it."""
    answers: Counter[str] = Counter()
    drawn = draw(320 if FULL else 12, whole)

    def run_round(zygote: Zygote, number: int) -> tuple[list[str], list[str]]:
        (undamaged, damage), store = drawn[number], tmp_path / str(number)
        shutil.copytree(undamaged, store)
        damage.inflict(store)
        ending = zygote.run_one(Job("read_and_capture", _arguments(whole, store)))
        shutil.rmtree(store)
        if ending.error or ending.signal:
            return [damage.kind], [f"{damage}: {ending} {ending.trace}"]
        found = {time: Findings(**ending.result[time]) for time in ("before", "after")}
        wrong = [
            f"{time}: {line}" for time, findings in found.items() for line in replace(findings, refused=[]).brief()
        ]
        if ending.result["unclear"]:
            wrong.append(f"capture: raised {ending.result['capture'][:300]}")
        answers.update(right=sum(findings.right for findings in found.values()))
        answers.update(refused=sum(len(findings.refused) for findings in found.values()))
        answers.update(
            {f"wrong: {kind}": len(lines) for findings in found.values() for kind, lines in findings.wrong.items()}
        )
        return [damage.kind], [f"{damage}: {line}" for line in wrong]

    tally = processes.rounds(run_round, number=len(drawn))
    counted = ", ".join(f"{count} {kind}" for kind, count in sorted(tally.done.items()))
    figures.append(f"damages: {tally.done.total()} ({counted}); answers: {dict(answers)}")
    tally.check()


def _arguments(whole: Whole, store: Path) -> dict[str, object]:
    return {
        "checkpoint": str(whole.workload.checkpoint),
        "store": str(store),
        "expected": str(whole.workload.expected_at),
        "epochs": whole.epochs,
    }
