"""The room: builds a learner's incident, judges what they say about it, and checks their fix."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from datetime import date
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

import streamstate as ss
from streamstate.tutorials.data import SCHEMAS, file_names, prepare
from streamstate.tutorials.exercises import Answer, StateExercise, Table, Worksheet, WrongAnswer
from streamstate.tutorials.exercises.attempts import Function
from streamstate.tutorials.exercises.own_query import run_to_end
from streamstate.tutorials.incidents.incident import CAUSES, FILES, Build, Incident
from streamstate.tutorials.incidents.judge import diagnosis
from streamstate.tutorials.incidents.kinds import incident_of
from streamstate.tutorials.incidents.proof import Files, Replayed
from streamstate.tutorials.incidents.queries import SCHEMA
from streamstate.tutorials.staging import clear

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from streamstate.reports import Audit
    from streamstate.state_inspect import History

FOLDER = "streamstate-data/incident-room"
GUEST = "guest"
"""The name of who gives none."""

_SCHEMA = pa.schema([SCHEMAS["flights"].field(column.split()[0]) for column in SCHEMA.split(", ")])
_FILE_TIME = 1388534400  # 2014-01-01T00:00:00Z; any time will do, as long as later files are newer
_TICKETS = {
    "board": "The board shows departures by day, airline and airport. An airline says that it is wrong.",
    "aircraft": "The query that follows aircraft has become slow. Somebody suspects its state.",
}


class IncidentRoom:
    """An incident, for the learner of a name. It is built by a query that runs for some seconds, unless it is there.

    Args:
        name: the learner's name; the same name gets the same incident.
        incident: another incident than the name's.
        folder: where the input, the checkpoint and the store of each learner go.
    """

    def __init__(
        self, name: Any = ..., *, incident: Incident | None = None, folder: str | os.PathLike[str] = FOLDER
    ) -> None:
        name = GUEST if name is ... else str(name)
        self._incident = incident or incident_of(name)
        self._learner = hashlib.sha256(name.strip().casefold().encode()).hexdigest()[:8]
        self._folder = Path(folder).resolve() / self._learner
        self.production = partial(_built, self._incident.code[1], str(self._folder / "input"))
        """Returns the query as it runs now, for verbs that ask for it: ``room.checkpoint.audit(room.production)``."""
        self._days = _days(Path(folder).resolve() / "days", self._incident.first_day)
        self.store = ss.open_store(self._opened())
        """The store that the query was captured into."""
        self.checkpoint = ss.Checkpoint(self._folder / "checkpoints" / self.query)
        """The query's checkpoint."""
        epochs = self.history.epochs()
        self._epochs = [int(epoch) for epoch in epochs.loc[epochs["offsets"] != epochs["offsets"].shift(), "epoch"]]
        self._newest = int(epochs["epoch"].max())
        self._sheet = Worksheet(
            f"incident_room {self._learner}", [diagnosis(self._incident, self._epochs), self._fix()]
        )

    @property
    def query(self) -> str:
        """The name of the query: "board" or "aircraft"."""
        return self._incident.query

    @property
    def history(self) -> History:
        """The captured epochs of the query."""
        return self.store[self.query]

    def departures(self) -> DataFrame:
        """The stream of departures that the query reads, a file in an epoch."""
        return _departures(str(self._folder / "input"))

    def submit(self, *, epoch: Any = ..., table: Any = ..., key: Any = ..., cause: Any = ...) -> Answer:
        """Say what happened.

        Args:
            epoch: the first epoch whose state is not what it should be.
            table: the state table.
            key: the key at which it began, as a dictionary of as many of its columns as tell it from the others.
            cause: one of the six causes.
        """
        given = {"epoch": epoch, "table": table, "key": key, "cause": cause}
        return self._sheet.check("diagnosis", given)

    def prove(self, build_query: Any = ...) -> Answer:
        """Check a fix: replay all epochs with it, and compare them with a batch over the right input.

        Args:
            build_query: returns the streaming DataFrame that would have been right.
        """
        if not self._sheet.is_right("diagnosis"):
            return Answer("waiting", "This waits until you have found out what happened: submit(…).")
        return self._sheet.check("fix", build_query)

    def hint(self) -> Answer:
        """Show the next hint: to what happened, then to the fix."""
        return self._sheet.hint("fix" if self._sheet.is_right("diagnosis") else "diagnosis")

    def progress(self) -> Answer:
        """Show what is done, and what is left."""
        return self._sheet.progress()

    def _briefing(self) -> Answer:
        noticed = self._epochs[self._incident.noticed]
        lines = [
            f"{_TICKETS[self.query]} It was noticed at epoch {noticed}.",
            f"The query is `{self.query}`: epochs {self._epochs[0]} to {self._newest}, one of the six causes below.",
            f"Its store is `{os.path.relpath(self.store.path)}`.",
        ]
        causes = Table(["cause", ""], [[f"`{cause}`", meaning] for cause, meaning in CAUSES.items()])
        return Answer("note", "You are on call.", lines, causes)

    def __repr__(self) -> str:
        return repr(self._briefing())

    def _repr_html_(self) -> str:
        return self._briefing()._repr_html_()

    def _opened(self) -> Path:
        """Build the incident, unless it is there; return its store."""
        store, built = self._folder / "store", self._folder / "built"
        if built.exists():
            ss.open_store(store)[self.query].describe(self.production, mode="update")
            return store
        clear(ss.session(), self.query, self._folder)
        files = self._incident.arriving(self._days)
        for code, part in zip(self._incident.code, (range(self._incident.restart), range(len(files))), strict=True):
            self._write(files, part)
            run_to_end(code(self.departures()), self.query, store)
        built.touch()
        return store

    def _write(self, files: Files, part: range) -> None:
        """Let files arrive that have not yet; their names only count."""
        folder = self._folder / "input"
        folder.mkdir(parents=True, exist_ok=True)
        for number in part:
            path = folder / f"part-{number:05}.parquet"
            if not path.exists():
                rows = files[number].sort_values("scheduled")
                pq.write_table(pa.Table.from_pandas(rows, _SCHEMA, preserve_index=False), path)
                os.utime(path, (_FILE_TIME + number, _FILE_TIME + number))

    def _fix(self) -> StateExercise:
        incident, folder = self._incident, str(self._folder / "input")
        return StateExercise(
            id="fix",
            task="Prove a fix",
            solution=partial(_built, incident.solution, folder),
            wrong=[WrongAnswer(partial(_built, build, folder), message) for build, message in incident.wrong_fixes],
            hints=incident.fix_hints,
            capture=self._replayed,
            grades=incident.proofs,
        )

    def _replayed(self, build_query: Function) -> Replayed | None:
        """Run all epochs again with a fix."""
        if build_query() is None:
            return None
        replay = self.checkpoint.replay(build_query, epochs=(0, self._newest))
        return self._compared(
            replay.replayed, lambda epoch: replay.fork.audit(build_query, epochs=(epoch, epoch), replays=1)
        )

    def _compared(self, history: History, audit: Callable[[int], Audit]) -> Replayed:
        incident = self._incident
        return Replayed(history, self._epochs, self.query, incident.right(self._days), incident.at, audit)


def _departures(folder: str) -> DataFrame:
    return ss.session().readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(folder)


def _built(build: Build, folder: str) -> DataFrame:
    return build(_departures(folder))


def _days(folder: Path, first: date) -> Files:
    """The departures of some days, a frame for each."""
    data = prepare(folder, days_per_file=1, last=date(2013, 2, 28))
    begin = (first - date(2013, 1, 1)).days
    return [pd.read_parquet(data / "flights" / name)[_SCHEMA.names] for name in file_names(data)[begin : begin + FILES]]
