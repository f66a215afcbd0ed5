"""The calls of one user, whose session is classic or of Spark Connect, and their answers as text."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

import streamstate as ss
from streamstate.operations.drill import drill


def building(spark: Any, source: Path) -> Callable[[], Any]:
    """The code of the recorded query."""
    from pyspark.sql import functions as F

    def build_query() -> Any:
        reader = spark.readStream.schema("k string, v long").option("maxFilesPerTrigger", 1)
        means = F.count("*").alias("n"), F.avg("v").alias("mean"), F.max("v").alias("most")
        return reader.parquet(str(source)).groupBy("k").agg(*means)

    return build_query


def answers(spark: Any, folder: Path, made: Path, calls: str) -> dict[str, Any]:
    """Make calls on ``folder/checkpoint``, whose query read ``folder/input``; what they make goes to ``made``.

    ``few`` need no server; ``most`` have those too that use the user's session; ``all`` every verb that runs code.
    """
    build = building(spark, folder / "input")
    checkpoint = ss.Checkpoint(folder / "checkpoint")
    checkpoint.capture(made / "store", "q", verify="never")
    history = ss.open_store(made / "store")["q"]
    history.describe(build)
    why = history.why(3, k="k1")
    fork = checkpoint.fork(made / "fork", at=1)
    step = fork.step(build, epochs=2)
    found = {
        "why": why,
        "why rows": why.rows,
        "why counts": [why.count(), why.cause, why.before, why.after, why.dropped],
        "check": checkpoint.check(build, store=made / "store"),
        "step": step,
        "stepped": [step.epoch, step.stopped, [run.changed for run in step.epochs]],
        "step's plan": step.plan is not None and step.plan.nodes[-1].name,
        "step's changes": step.diff().to_pandas(),
        "state of the fork": step.history.live().table().to_pandas(),
    }
    if calls != "few":
        found |= _read(history)
        found |= _sql_in_spark(spark, ss.open_store(made / "store"))
    if calls == "all":
        found |= _more(spark, build, checkpoint, history, fork, made)
    places = {str(made): "MADE", str(folder): "FOLDER"}
    return {name: _text(answer, places) for name, answer in found.items()}


def drilled(folder: Path) -> list[Any]:
    """The answer of a drill, whose processes have classic sessions beside any kind."""
    report = drill(_with_own_session(folder / "input"), epochs=3)
    return [report.ok, report.after, report.epochs]


def _with_own_session(source: Path) -> Callable[[], Any]:
    """The code of the recorded query, which makes its session itself."""

    def build_query() -> Any:
        return building(ss.session(), source)()

    return build_query


def _sql_in_spark(spark: Any, store: Any) -> dict[str, Any]:
    """Statements that Spark runs, and what is refused."""
    run = partial(store.sql, engine="spark")
    names = pd.DataFrame({"key": ["k0", "k1"], "name": ["zero", "one"]})
    frames = {"names": names, "twice": spark.range(2)}
    lazy = run("SELECT k, max FROM q VERSION AS OF 2").to_spark()
    refused = (
        *("SELECT nothing FROM q", "SELECT java_method('a', 'b') FROM q", "SELECT '${env:HOME}' FROM q"),
        *("SELECT n FROM q.result VERSION AS OF 99", "SELECT k + FROM q"),
    )
    return {
        "SQL": run("SELECT *, '{k}' AS text FROM q").to_pandas(),
        "SQL at an epoch": run("SELECT k, max FROM q VERSION AS OF ? WHERE max > ?", params=[1, 3]).to_pandas(),
        "SQL of a history": run("FROM q.history").to_pandas(),
        "SQL of changes": run("SELECT * EXCLUDE (_partition) FROM q.changes", at=2).to_pandas(),
        "SQL of a result": run("FROM q.result VERSION AS OF 3").to_pandas(),
        "SQL of inputs": run("SELECT count(*) AS n, sum(v) AS total FROM q.inputs VERSION AS OF 2").to_pandas(),
        "SQL with frames": run("SELECT * FROM q JOIN names ON k = key, twice", frames=frames).to_pandas(),
        "SQL with WITH": run("WITH q AS (SELECT max(count) AS most FROM q) FROM q").to_pandas(),
        "SQL's columns": [str(run("SELECT k, sum, now() AS at FROM q").to_arrow().schema), len(run("FROM q"))],
        "SQL to Spark": [sorted(map(tuple, lazy.filter("max > 3").collect())), lazy.columns],
        "SQL refused": [_refusal(partial(run, sql)) for sql in refused],
    }


def _refusal(call: Callable[[], object]) -> str:
    """The error of a call, without what depends on the kind of session."""
    try:
        return f"no error: {call()!r}"
    except ss.StreamStateError as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"


def _read(history: Any) -> dict[str, Any]:
    """Rows of the input, which the worker reads, as frames of each kind."""
    return {
        "why sides": history.why(3, k="k1").sides["rows"].toPandas(),
        "inputs": history.inputs(2).toPandas(),
        "inputs as Arrow": history.inputs(2).to_arrow().to_pydict(),
        "late": history.late(2),
        "late counts": history.late_counts("1..2"),
        "result": history.at(3).result().to_pandas(),
    }


def _more(
    spark: Any, build: Callable[[], Any], checkpoint: ss.Checkpoint, history: Any, fork: ss.Checkpoint, made: Path
) -> dict[str, Any]:
    replay = checkpoint.replay(build, epochs="1..3")
    edited = checkpoint.fork(made / "edited", at=2, edit="DELETE FROM op0 WHERE k = 'k1'")
    migrated = checkpoint.migrate(build, to=made / "migrated")
    rescaled = ss.Checkpoint(made / "migrated").rescale(3)
    rows = spark.createDataFrame([("a", 2, 3.0, 1, 7)], "k string, count long, sum double, count_2 long, max long")
    with checkpoint.debug(build, at=1) as session:
        first = session.step(2).epoch
        session.watch("max(max)")
        session.goto(2)
        session.step()
        debugged = [first, session.epoch, session.watches(), session.name, session.plan is not None]
    fork.step(build, until="error")
    fork.promote(over=shutil.copytree(checkpoint.path, made / "promoted"))
    return {
        "replay": [replay.same, replay.comparison, replay.fork.epoch, replay.steps.stopped],
        "edited": [edited.edited_rows, edited.epoch],
        "edited state": _captured(edited, made),
        "audit": checkpoint.audit(build, epochs="1..2", replays=1),
        "mapping": checkpoint.propose_mapping(build),
        "migrated": [migrated.rows, _captured(migrated, made)],
        "rescaled": rescaled.partitions,
        "restored": history.at(2).restore(to=made / "restored").rows,
        "restored by code": history.at(2).restore(to=made / "by_code", build_query=build).rows,
        "bootstrapped": ss.bootstrap(build, to=made / "bootstrapped", batch=True).rows,
        "bootstrapped from rows": ss.bootstrap(build, to=made / "from_rows", state=rows).rows,
        "debugged": debugged,
        "promoted": ss.Checkpoint(made / "promoted").promotion(),
    }


def _captured(checkpoint: ss.Checkpoint, made: Path) -> pd.DataFrame:
    """The newest state of a checkpoint."""
    name = checkpoint.path.rsplit("/", 1)[-1]
    checkpoint.capture(made / "others", name, verify="never")
    return ss.open_store(made / "others")[name].live().table().to_pandas()


def _text(answer: Any, places: dict[str, str]) -> Any:
    """An answer, without what differs from run to run: times, temporary folders."""
    if isinstance(answer, pd.DataFrame):
        rows = answer.astype(str)
        return [list(rows.columns), *sorted(rows.to_numpy().tolist())]
    if isinstance(answer, (list, tuple)):
        return [_text(part, places) for part in answer]
    text = repr(answer)
    for place, name in places.items():
        text = text.replace(place, name)
    text = re.sub(r"/tmp/[\w/-]+", "TEMPORARY", text)
    return re.sub(r"\d+\.\d+ s\b", "TIME", text)
