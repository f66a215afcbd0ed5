"""The exercises of the notebook I4, "Where does it live?": memory, changelogs, snapshots and a remote store."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import streamstate as ss
from streamstate.errors import EpochGoneError
from streamstate.snapshots.checkpoint.state_files import StoreFiles
from streamstate.tutorials.exercises.answers import Table
from streamstate.tutorials.exercises.construct import Construct, Exercise, Invariant
from streamstate.tutorials.exercises.judged_runs import fault_of, picture_of
from streamstate.tutorials.exercises.questions import Choice, Keys, Number, Question, WrongAnswer
from streamstate.tutorials.exercises.store_cases import (
    Changes,
    Loaded,
    change_cases,
    file_cases,
    folded,
    loaded,
    newest,
    purge_cases,
    run_purges,
)
from streamstate.tutorials.simulation import Player, explore, run
from streamstate.tutorials.simulation.log_structured import KEPT, READ, LogStructured, Stored
from streamstate.tutorials.simulation.snapshot_costs import SnapshotsEvery, measured
from streamstate.tutorials.simulation.store_files import File, Files, chain, held, merged, needed, newest_snapshot
from streamstate.tutorials.simulation.store_mutants import (
    STORE_MUTANTS,
    AcknowledgesFirst,
    DropsTombstones,
    PurgesByAge,
)

FILES: Files = (
    File(1, "changelog", (("x", 1), ("y", 1))),
    File(2, "changelog", (("x", 2),)),
    File(2, "snapshot", (("x", 2), ("y", 1))),
    File(3, "changelog", (("y", None),)),
    File(4, "changelog", (("x", 4),)),
    File(4, "snapshot", (("x", 4),)),
)
"""The files of the first questions."""
_NAMES = tuple(file.name for file in FILES)
KEYS, CHANGED = 1_000, 10
"""The state of the questions on costs, and how many of its keys a version changes."""


def play() -> Player[Stored]:
    """Return a player of two versions of one key and a crash, with all rules and without some."""
    kinds = {
        "none": LogStructured,
        "deletions are written": DropsTombstones,
        "a purge leaves what is needed": PurgesByAge,
        "upload, then acknowledge": AcknowledgesFirst,
    }
    return Player(
        {name: explore(kind(2, keys="x", retain=1, disk=["lost"])) for name, kind in kinds.items()},
        title="A store and its files",
        caption="You choose what happens next. The newest version must stay readable. Try to break a promise.",
        parameter="the rule that is missing",
    )


def play_costs() -> Player[Stored]:
    """Return a player of twelve versions, with a slider for the interval between snapshots."""
    return Player(
        {every: run(SnapshotsEvery(every), 0) for every in (1, 2, 3, 6, 12)},
        title="What is written, and what a load reads",
        caption="Eight keys, two changes in each version. A load of the newest version reads the green files.",
        at=11,
        parameter="versions from one snapshot to the next",
    )


def spark_files(store: Path) -> Files:
    """Return the changelogs and snapshots in the folder of one of Spark's state stores, without their entries."""
    found = StoreFiles([path.name for path in store.iterdir()]).files
    return tuple(File(file.version, "snapshot" if file.whole else "changelog", ()) for file in found)


def lost_epochs(checkpoint: Path) -> set[str]:
    """Return the epochs of a checkpoint whose state cannot be loaded: streamstate refuses to fork at them."""
    opened, lost = ss.Checkpoint(checkpoint), set()
    with tempfile.TemporaryDirectory() as folder:
        for epoch in opened.epochs()["epoch"]:
            try:
                opened.fork(Path(folder) / str(epoch), at=int(epoch))
            except EpochGoneError:
                lost.add(str(epoch))
    return lost


def get(files: Sequence[File], key: str, version: int) -> int | None:
    """Return the value of a key at a version; None if it has none."""
    return dict(merged(needed(files, version))).get(key)


def may_purge(file: File, files: Sequence[File], retained: Sequence[int]) -> bool:
    """Check that no retained version needs a file."""
    return all(file not in needed(files, version) for version in retained)


def holds(changes: Changes, _every: int, retain: int, found: Loaded) -> bool:
    """Check that each load finds what its version held."""
    return found == {version: folded(changes, version) for version in newest(changes, retain)}


def _deletion() -> str:
    return "nothing" if explore(DropsTombstones(2, keys="x", retain=1)).shortest(READ) is None else "mark"


def _safe() -> str:
    return "local" if explore(AcknowledgesFirst(1, keys="x")).shortest(KEPT) is None else "remote"


def _cost_table() -> Table:
    costs = {every: measured(KEYS, CHANGED, every) for every in (1, 10, 100, 1_000)}
    rows = [[every, cost.written, cost.written / CHANGED, cost.read] for every, cost in costs.items()]
    return Table(["versions per snapshot", "written per version", "per change", "most that a load reads"], rows)


def _with_newest(files: Sequence[File], key: str, version: int) -> int | None:
    base = newest_snapshot(files, max(file.version for file in files))
    return dict(merged(chain(files, version, base) or ())).get(key)


def _without_deletions(files: Sequence[File], key: str, version: int) -> int | None:
    return get([file._replace(entries=held(dict(file.entries))) for file in files], key, version)


def _from_snapshot(files: Sequence[File], key: str, version: int) -> int | None:
    base = newest_snapshot(files, version)
    return dict(base.entries).get(key) if base else None


def _from_changelogs(files: Sequence[File], key: str, version: int) -> int | None:
    kept = (file for file in files if file.kind == "changelog" and file.version <= version)
    return dict(merged(kept)).get(key)


def _old_changelogs(file: File, files: Sequence[File], retained: Sequence[int]) -> bool:
    return file.kind == "changelog" and may_purge(file, files, retained)


def _before_newest(file: File, files: Sequence[File], retained: Sequence[int]) -> bool:
    return may_purge(file, files, retained[-1:])


def _there(changes: Changes, _every: int, _retain: int, found: Loaded) -> bool:
    return all(
        table is not None and table.items() >= folded(changes, version).items() for version, table in found.items()
    )


EXERCISES: Sequence[Question | Exercise] = (
    Question(
        id="deletion",
        task="What does version 3 write when y is deleted?",
        kind=Choice(
            {
                "nothing": "nothing: y is in no file of version 3",
                "mark": "a mark in changelog 3 which says that y is deleted",
                "rest": "all that is left, in changelog 3",
                "erase": "y is erased from the older files",
            }
        ),
        truth=_deletion,
        because="A file is never changed. So what is gone has to be written, too: the mark is called a tombstone.",
        wrong=[
            WrongAnswer("nothing", "Load version 3 from snapshot 2 and a changelog 3 that is empty. What is y?"),
            WrongAnswer("rest", "That would be a snapshot. What does it cost if one of a million keys is deleted?"),
            WrongAnswer("erase", "Somebody may still read version 2. What did it hold?"),
        ],
        hints=["How does a reader of snapshot 2 and changelog 3 know?"],
    ),
    Question(
        id="load",
        task="Which files does a load of version 3 read?",
        kind=Keys(_NAMES),
        truth=lambda: {file.name for file in needed(FILES, 3)},
        because="The newest snapshot up to the version, and the changelogs after it.",
        wrong=[
            WrongAnswer({"snapshot 4"}, "It is the newest snapshot. It has x = 4, which version 3 did not know."),
            WrongAnswer(
                {"changelog 1", "changelog 2", "changelog 3"},
                "Their result is right. Which file has the sum of the first two already?",
            ),
            WrongAnswer(
                {"snapshot 2", "changelog 2", "changelog 3"}, "What does changelog 2 say that snapshot 2 does not?"
            ),
            WrongAnswer({"changelog 3"}, "It has what changed in version 3. Where is x?"),
        ],
        hints=["A snapshot saves you all files before it.", "Which snapshot does not know too much?"],
    ),
    Question(
        id="acknowledge",
        task="When may version 3 be acknowledged?",
        kind=Choice(
            {
                "memory": "once its changes are in the memtable",
                "local": "once changelog 3 is on the local disk",
                "remote": "once changelog 3 is in the remote store",
                "snapshot": "once snapshot 3 is in the remote store",
            }
        ),
        truth=_safe,
        because="What is acknowledged must survive the loss of the machine. Snapshots only make loads shorter: they "
        "may be written later, beside the work.",
        wrong=[
            WrongAnswer("memory", "The power fails. What is left?"),
            WrongAnswer("local", "The machine fails, with its disk, and another one goes on."),
            WrongAnswer("snapshot", "It is safe. Is version 3 not safe before that?"),
        ],
        hints=["Which of these files can another machine read?"],
    ),
    Question(
        id="purge",
        task="Versions 3 and 4 are retained. Which files may be purged?",
        kind=Keys(_NAMES),
        truth=lambda: {file.name for file in FILES if may_purge(file, FILES, (3, 4))},
        because="Version 3 is loaded from snapshot 2 and changelog 3, and version 4 from snapshot 4 alone.",
        wrong=[
            WrongAnswer(
                {"changelog 1", "changelog 2", "snapshot 2"},
                "You count versions: all that is older than version 3 goes. Now load version 3.",
            ),
            WrongAnswer(
                {"changelog 1", "changelog 2"},
                "That is safe. There is one more file that neither version is loaded from.",
            ),
            WrongAnswer(set(_NAMES) - {"snapshot 4"}, "That leaves what version 4 needs. And version 3?"),
        ],
        hints=["Write down the files of version 3, then those of version 4."],
    ),
    Question(
        id="amplification",
        task="How many entries are written for each change?",
        kind=Number(),
        truth=lambda: measured(KEYS, CHANGED, 10).written / CHANGED,
        because="Ten versions write 10 · 10 entries of changelogs and 1,000 of a snapshot: 1,100 for 100 changes. That "
        "is write amplification.",
        wrong=[
            WrongAnswer(1, "Those are the changelogs. Every tenth version writes all keys."),
            WrongAnswer(10, "Those are the snapshots. The changelogs are written, too."),
            WrongAnswer(110, "That is what one version writes. How many changes does it have?"),
            WrongAnswer(101, "That is a snapshot after each version."),
        ],
        hints=["What do ten versions write, and how many changes do they have?"],
    ),
    Question(
        id="interval",
        task="How many versions may lie from one snapshot to the next?",
        kind=Number(tolerance=1),
        truth=lambda: max(every for every in range(1, 301) if measured(KEYS, CHANGED, every).read <= 2 * KEYS),
        because="A load reads the 1,000 entries of the snapshot, and 10 of each changelog after it. A hundred of these "
        "have another 1,000. Fewer snapshots write less, and a load reads more.",
        wrong=[
            WrongAnswer(200, "A load reads the snapshot, too."),
            WrongAnswer(10, "Ten changelogs have 100 entries. How many more may there be?"),
            WrongAnswer(1_000, "A thousand changelogs have 10,000 entries."),
        ],
        table=_cost_table,
        hints=["The snapshot has 1,000 of the 2,000 entries.", "A changelog has 10 entries."],
    ),
    Construct(
        id="get",
        task="Write `get(files, key, version)`",
        solution=get,
        arguments=["files", "key", "version"],
        cases=file_cases,
        examples=[(FILES, "x", 3), (FILES, "y", 3)],
        wrong=[
            WrongAnswer(_with_newest, "You begin with the newest snapshot. It may be newer than the version."),
            WrongAnswer(_without_deletions, "A deleted key comes back from an older file. What does None say?"),
            WrongAnswer(_from_snapshot, "You stop at the snapshot. What changed after it?"),
            WrongAnswer(
                lambda files, key, version: dict(merged(files)).get(key),
                "You read all files. Some are newer than the version.",
            ),
            WrongAnswer(_from_changelogs, "You read changelogs only. The old ones may be purged: who has their sum?"),
        ],
        hints=[
            "Go through the files in their order, and keep the value that you know.",
            "A snapshot has the last word on all versions before: what is not in it is gone.",
        ],
    ),
    Construct(
        id="may_purge",
        task="Write `may_purge(file, files, retained)`",
        solution=may_purge,
        arguments=["retained versions", "run"],
        cases=purge_cases,
        run=run_purges,
        judge=fault_of,
        picture=picture_of,
        wrong=[
            WrongAnswer(
                lambda file, files, retained: file.version < min(retained),
                "You count versions. A retained version may need a snapshot and changelogs that are older than itself.",
            ),
            WrongAnswer(lambda file, files, retained: False, "You keep everything: the store grows for ever."),
            WrongAnswer(
                _before_newest, "You keep what the newest version needs. What of the other ones that are retained?"
            ),
            WrongAnswer(_old_changelogs, "You never purge a snapshot. Old ones are the largest files of all."),
        ],
        hints=[
            "Which files is a version loaded from? You wrote it in `get`.",
            "A file may go if that is true for none of the retained versions.",
        ],
    ),
    Invariant(
        id="invariant",
        task="Write the invariant of a store",
        solution=holds,
        arguments=["changes", "every", "retain"],
        cases=change_cases,
        examples=[(({"x": 1}, {"x": None}), 1, 1)],
        rule=partial(loaded, LogStructured),
        mutants=[WrongAnswer(partial(loaded, kind), f"is broken: {kind.fault}.") for kind in STORE_MUTANTS],
        wrong=[
            WrongAnswer(
                lambda changes, every, retain, found: found[len(changes)] == folded(changes, len(changes)),
                "You look at the newest version. The older ones that are retained can be wrong, too.",
            ),
            WrongAnswer(_there, "You check that all that was put is there. What of that which was deleted?"),
            WrongAnswer(
                lambda changes, every, retain, found: None not in found.values(),
                "You check that each version can be loaded. Is it what it was?",
            ),
        ],
        hints=[
            "Fold the changes up to a version into a dictionary; a change to None removes the key.",
            "Compare it with `found[version]`, for every version in `found`.",
        ],
    ),
    Question(
        id="restart_reads",
        task="How many of Spark's files have the rows that a restart loads?",
        kind=Number(),
        truth=None,
        because="The newest snapshot, of version 4, and the changelogs 5 and 6.",
        wrong=[
            WrongAnswer(6, "Those are all changelogs. The snapshot has the sum of the first four."),
            WrongAnswer(7, "Those are all files. Which of them are newer than the snapshot?"),
            WrongAnswer(1, "The snapshot is of version 4. What happened since?"),
            WrongAnswer(2, "Those are the changelogs after the snapshot."),
        ],
        hints=["It is your `get`: one snapshot, and what changed after it."],
    ),
    Question(
        id="unreadable",
        task="Which epochs can no longer be loaded?",
        kind=Keys(tuple("012345")),
        truth=None,
        because="Epochs 1 and 2 are versions 2 and 3, whose loads need changelog 2. From version 4 on, loads "
        "begin with the snapshot.",
        wrong=[
            WrongAnswer({"2", "3"}, "Those are the right versions. Epoch 0 wrote version 1."),
            WrongAnswer({"1"}, "That is version 2. Which other version is loaded through changelog 2?"),
            WrongAnswer({"1", "2", "3", "4", "5"}, "Where does a load of version 4 begin?"),
            WrongAnswer(set(), "There is no snapshot before version 4."),
        ],
        hints=["Epoch n writes version n + 1.", "Which versions are loaded through changelog 2?"],
    ),
)
