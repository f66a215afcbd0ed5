"""A controller decides first, then acts; whatever it is killed between, the rows and the bindings say what happened."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from policies.made import QUERY_ID, RULES, MadeLimits, MadePolicy, MadeQuery
from streamstate.operations.policies.admission import Admission
from streamstate.operations.policies.decision import Decision
from streamstate.snapshots.spark.read_limits import LimitedSource
from streamstate.snapshots.store.control_table import ACTED, ADMISSION, DECISION, RESCALE, SHEDDING, in_force
from streamstate.snapshots.store.epoch_load import EpochLoad, SourceLoad
from streamstate.variables import decided_epochs
from streamstate.variables.decided_epochs import LONGEST_WAIT, DecidedEpochs, Mark
from streamstate.variables.transports.files import FilesTransport

POLICY = MadePolicy(5.0)
POINTS = ("heard", "decided", "written", "moved", "decided on", "declared", "reset")


class Killed(BaseException):
    """The process is killed at a point."""


def ran(query: MadeQuery, epochs: int) -> None:
    """Run epochs with the query's controller."""
    for _ in range(epochs):
        query.plan()
        query.controller.heard(query.commit())


def test_a_decision_on_an_epoch_acts_in_the_next(tmp_path: Path) -> None:
    """The level of epoch N + 1 is that of the decision after N; the row names the epoch before which it acts."""
    query = MadeQuery(tmp_path)
    query.controller.declare(POLICY)
    ran(query, 7)
    assert query.levels == {0: 10_000, 1: 10_000, 2: 10_000, 3: 5000, 4: 5000, 5: 5000, 6: 2500}
    rows = query.controller.control.rows()
    assert [(row.epoch, row.after) for row in rows if row.lever == SHEDDING] == [(2, 0.5), (5, 0.25)]
    assert [row.number for row in rows] == list(range(len(rows)))


def test_the_level_that_an_epoch_was_bound_to_is_what_the_rules_see(tmp_path: Path) -> None:
    """The share that was kept comes from the epoch's binding, not from what is in force by then."""
    query = MadeQuery(tmp_path)
    query.controller.declare(POLICY)
    ran(query, 5)
    assert [seen.kept for seen in query.controller._seen] == [1.0, 1.0, 1.0, 0.5, 0.5]
    assert [seen.first for seen in query.controller._seen] == [True, True, False, False, False]


@pytest.mark.parametrize("planning", [False, True])
def test_a_limit_acts_in_the_first_epoch_that_certainly_saw_it(tmp_path: Path, *, planning: bool) -> None:
    """If Spark may be planning the next epoch, the one after it is named."""
    query = MadeQuery(tmp_path)
    query.limits.planning = lambda: planning
    query.controller.declare(POLICY)
    ran(query, 8)
    rows = query.controller.control.rows()
    [decided] = [row for row in rows if row.lever == ADMISSION and row.kind == DECISION]
    [acted] = [row for row in rows if row.kind == ACTED]
    assert (decided.epoch, decided.after, acted.of) == (4, 104, decided.number)
    assert acted.epoch == (6 if planning else 5)
    assert all(query.limited[epoch] == 104 for epoch in range(acted.epoch, 8))


@pytest.mark.parametrize("fails", [False, True])
def test_a_rescale_acts_in_its_first_epoch_or_never(tmp_path: Path, *, fails: bool) -> None:
    """One that fails is not acted, its error stays, and the controller goes on."""

    def decide(policy: MadePolicy, observed: Any, levers: Any, past: Any) -> Iterable[Decision]:
        if not any(decision.lever == RESCALE for decision in past):
            yield Decision(RESCALE, 2, 4, holds=False, reason="slow")  # type: ignore[arg-type]

    def rescale(partitions: int) -> int:
        if fails:
            raise RuntimeError("lost\nexecutor")
        return 40 + partitions

    query = MadeQuery(tmp_path, replace(RULES, decide=decide, rescale=rescale))
    query.controller.declare(POLICY)
    ran(query, 3)
    rows = query.controller.control.rows()
    assert [(row.kind, row.epoch) for row in rows if row.lever == RESCALE] == [
        (DECISION, 0),
        *(() if fails else [(ACTED, 44)]),
    ]
    assert query.controller.failed == ("The policy's rescale to 4 partitions failed: lost" if fails else None)
    assert Mark.of(query.level.log.transport.get(f"decided/{QUERY_ID}", "epoch")) == Mark(2, 0.2)


def test_a_policy_that_ends_moves_the_levers_back(tmp_path: Path) -> None:
    """Everything is kept and read again; what undid the levers is a decision too, and is taken once."""
    query = MadeQuery(tmp_path)
    query.controller.declare(POLICY)
    ran(query, 5)
    assert query.controller.in_force.kept == 0.5
    assert [query.limits.limit] == [104]
    ended, again = query.controller.declare(None), query.controller.declare(None)
    assert ended is not None
    assert again is None
    ran(query, 3)
    assert [query.levels[epoch] for epoch in (4, 5, 6)] == [5000, 10_000, 10_000]
    assert query.limits.limit is None
    *_, shedding, admission, acted = query.controller.control.rows()
    assert shedding.reason == admission.reason == "The policy has ended: everything is kept and read again."
    assert (acted.of, acted.epoch) == (admission.number, 5)


def test_a_changed_policy_is_a_new_version_from_the_next_epoch_on(tmp_path: Path) -> None:
    """The same policy again is none; another one is decided by at once, with the epochs that were seen."""
    query = MadeQuery(tmp_path)
    first = query.controller.declare(POLICY)
    ran(query, 3)
    assert query.controller.declare(POLICY) is None
    second = query.controller.declare(MadePolicy(9.0))
    assert first is not None
    assert second is not None
    rows = query.controller.control.rows()
    assert [(row.epoch, row.policy) for row in rows if row.kind == DECISION] == [(2, first.number), (2, second.number)]
    ran(query, 1)
    assert query.levels[3] == 2500


def test_a_controller_that_begins_continues_from_the_store(tmp_path: Path) -> None:
    """A new process moves the level if the old one was killed between the row and the lever, and sets the limit."""
    query = MadeQuery(tmp_path)
    query.controller.declare(POLICY)

    def killed(point: str) -> None:
        if point == "written":
            raise Killed

    ran(query, 2)
    query.plan()
    report = query.commit()
    query.reached = killed
    with pytest.raises(Killed):
        query.controller.heard(report)
    query.reached = lambda _point: None
    query.plan()
    assert query.level.log.value(query.level.log.head()) == 10_000
    query.controller = query.born()
    query.controller.begin_run()
    assert query.level.log.value(query.level.log.head()) == 5000
    query.controller.heard(query.commit())
    ran(query, 1)
    assert [query.levels[epoch] for epoch in (2, 3, 4)] == [10_000, 10_000, 5000]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_kills_at_chosen_points_double_nothing_and_lose_nothing(tmp_path: Path, seed: int) -> None:
    """Forty kills per seed, at every point: each decision is there once, and each epoch's level is that of a row."""
    random, query, kills, epochs = Random(seed), MadeQuery(tmp_path), 0, 0
    counted = dict.fromkeys(POINTS, 0)
    due = ""

    def reached(point: str) -> None:
        nonlocal due, kills
        if point == due:
            due = ""
            kills += 1
            counted[point] += 1
            raise Killed

    query.reached = reached
    while kills < 40 or epochs < 60:
        try:
            if query.controller.in_force.policy is None or random.random() < 0.1:
                query.controller.declare(random.choice([None, POLICY, MadePolicy(7.0)]))
            query.plan()
            report, epochs = query.commit(), epochs + 1
            due = min(POINTS, key=lambda point: (counted[point], random.random())) if random.random() < 0.8 else ""
            query.controller.heard(report)
        except Killed:
            query.limits.limit = None  # a new run begins with the options' limits
            query.controller = query.born()
            query.controller.begin_run()
    due = ""
    ran(query, 2)
    assert min(counted.values()) >= 3
    rows = query.controller.control.rows()
    assert [row.number for row in rows] == list(range(len(rows)))
    decided = [(row.epoch, row.policy, row.lever) for row in rows if row.kind == DECISION and row.policy is not None]
    assert len(decided) == len(set(decided))
    _check_levels(query)
    acted = [row.of for row in rows if row.kind == ACTED]
    assert len(acted) == len(set(acted))
    for row in rows:
        if row.kind == ACTED and row.epoch in query.limited:
            assert query.limited[row.epoch] == (None if row.after is None else int(row.after))


def _check_levels(query: MadeQuery) -> None:
    """Each version names one decision, and has its value; the newest one is what the rows say is in force."""
    rows = {row.by: row for row in query.controller.control.rows() if row.lever == SHEDDING}
    log = query.level.log
    for number in log.numbers():
        if number:
            assert log.value(number) == round((rows[log.entry(number).by].after or 0) * 10_000)
    now = in_force(query.controller.control.rows())
    assert log.value(log.head()) == round(now.kept * 10_000)


class Clock:
    """A clock on which time passes only by sleeping."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        """The time in seconds."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds


class TestWaiting:
    """The planning of an epoch waits for a decision, for a bounded time."""

    @pytest.fixture(autouse=True)
    def _stopped_clock(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The mark as the controller sees it, and as the planning does."""
        self.clock = Clock()
        monkeypatch.setattr(decided_epochs, "time", self.clock)
        transport = FilesTransport(tmp_path)
        self.controller, self.hook = DecidedEpochs(transport, "q"), DecidedEpochs(transport, "q")

    def took(self, committed: int) -> Any:
        """The seconds that an epoch waited."""
        began = self.clock.now
        self.hook.wait_for(committed)
        return pytest.approx(self.clock.now - began, abs=0.003)

    def test_without_a_controller_nothing_waits(self) -> None:
        """Also after one has ended."""
        assert self.took(3) == 0
        self.controller.publish(Mark(0, 0.2))
        self.controller.withdraw()
        assert self.took(3) == 0

    def test_a_dead_controller_costs_one_wait(self) -> None:
        """Later epochs do not wait until it gives a sign of life."""
        self.controller.publish(Mark(3, 0.15))
        assert [self.took(epoch) for epoch in (3, 4, 5)] == [0, 0.15, 0]
        self.controller.publish(Mark(5, 0.15))
        assert self.took(6) == 0.15

    def test_an_unusually_long_epoch_is_worth_waiting_for(self) -> None:
        """A decision on it is likely, though the mark says that hardly any wait is worth it."""
        for committed in range(4):
            self.controller.publish(Mark(committed, 0.001))
            assert self.took(committed) == 0
            self.clock.sleep(0.1)
        assert self.took(4) == 0.001, "as long as the others"
        self.controller.publish(Mark(4, 0.001))
        assert self.took(4) == 0
        self.clock.sleep(0.4)
        assert self.took(5) == LONGEST_WAIT
        assert self.took(6) == 0, "once, if it does not come"

    def test_bytes_that_are_no_mark_are_none(self, tmp_path: Path) -> None:
        """They may come from another version of streamstate."""
        FilesTransport(tmp_path).put(self.controller._group, "epoch", b"\xff 3")
        assert self.took(3) == 0


def test_a_policy_that_is_changed_in_mid_epoch_names_the_epoch_under_way(tmp_path: Path) -> None:
    """That epoch is bound already: the policy applies to later ones."""
    query = MadeQuery(tmp_path)
    ran(query, 2)
    query.plan()
    declared = query.controller.declare(POLICY)
    assert declared is not None
    assert declared.epoch == 2


def progress(epoch: int, rows: int) -> dict[str, object]:
    """Spark's report on an epoch of one source."""
    return {"batchId": epoch, "sources": [{"description": "made", "numInputRows": rows, "endOffset": "{}"}]}


@dataclass
class FileLimits:
    """The limits of a source of files."""

    own: int | None = None

    def sources(self) -> list[LimitedSource]:
        """Return the one source."""
        return [LimitedSource("made", "files", self.own)]

    def set(self, limits: Sequence[int | None]) -> bool:
        """Set nothing: the test says what is read."""
        return True


class TestFullEpochs:
    """Of a source that does not tell what waits, an epoch that read as much as it might proves nothing."""

    def full(self, admission: Admission, epoch: int, rows: int, *, backlog: int | None = None) -> bool:
        """Check an epoch, of whose files each has ten rows."""
        return admission.full(progress(epoch, rows), EpochLoad(1.0, sources=(SourceLoad("made", rows, backlog),)))

    def test_files_are_listed_anew_after_a_list_is_read(self) -> None:
        """So the first epoch below the limit may have read the rest of a list."""
        admission = Admission(FileLimits, lambda _place, source: int(source["numInputRows"]) // 10)
        admission.observe(progress(0, 100))
        assert not self.full(admission, 0, 1000)
        admission.limit(50, 0)
        read = [50, 50, 40, 40, 50, 20, 20]
        assert [self.full(admission, 1 + at, rows) for at, rows in enumerate(read)] == [
            True,
            True,
            True,
            False,
            True,
            True,
            False,
        ]
        admission.limit(None, 7)
        assert [self.full(admission, 8, 500), self.full(admission, 9, 500)] == [False, False]

    def test_any_limit_that_may_have_applied_counts(self) -> None:
        """Spark may plan an epoch while limits are set, one after another."""
        admission = Admission(lambda: MadeLimits(lambda: True))
        for committed, rows in enumerate((100, 200, 400)):
            admission.limit(rows, committed)
        assert [self.full(admission, epoch, 100) for epoch in (2, 3, 4)] == [True, True, False]

    def test_a_limit_of_its_options_counts(self) -> None:
        """Whoever set it, more may wait."""
        admission = Admission(lambda: FileLimits(2), lambda _place, source: int(source["numInputRows"]) // 10)
        assert [self.full(admission, 0, rows) for rows in (20, 10, 10)] == [True, True, False]

    def test_a_source_that_tells_its_backlog_is_believed(self) -> None:
        """Rows are limited, and Kafka says what waits."""
        admission = Admission(MadeLimits)
        admission.limit(50, 0)
        assert not self.full(admission, 1, 50, backlog=0)
        assert self.full(admission, 1, 50)
        assert not self.full(admission, 2, 49)
