"""Changes that Spark accepts silently: other names, expressions, conditions and results over the same columns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from streamstate.errors import worded
from streamstate.operations.code_check.report import Finding, migrate_call
from streamstate.operations.code_check.schema_changes import SchemaChange
from streamstate.operations.code_check.spark_verdict import SparkVerdict, sentences
from streamstate.snapshots.store.query_plans.query_plan import QueryPlan, StateInput

_MIXED = "Rows from before and after are merged as if they were alike."
_WINDOW = re.compile(
    r"named_struct\('start', knownnullable\(precisetimestamp.* % (?P<slide>\d+)L\) .*\+ (?P<width>\d+)L\)\)\)$",
    re.DOTALL,
)
_LONGEST = 200
_OPAQUE = (
    "FlatMapGroupsInPandasWithState", "FlatMapGroupsWithState", "TransformWithState", "TransformWithStateInPySpark",
)  # fmt: skip


def _if_meant() -> str:
    return f"If it is meant, {migrate_call()} can convert the old state, or start over with another checkpoint."


def name_findings(verdict: SparkVerdict, *, explained: bool) -> Iterator[Finding]:
    """State columns with other names, and variables that came or went.

    Args:
        verdict: Spark's.
        explained: whether recorded expressions are compared too: names alone then mean nothing.
    """
    for change in verdict.changes:
        if change.kind not in ("names", "order"):
            continue
        if explained:
            advice = "Nothing, unless another finding says that the expressions differ."
            yield Finding("names_only", sentences([change]), "Spark finds columns by their place, not by name.", advice)
        else:
            yield Finding(f"{change.part}_names", sentences([change]), _effect(change), _if_meant())
    yield from _variables(verdict)


def _effect(change: SchemaChange) -> str:
    if change.part == "key" and change.kind == "order":
        return f"Spark starts, and takes the old values of one key column for those of another. {_MIXED}"
    return f"Spark starts, and takes the old columns for the new ones, by their place. {_MIXED}"


def _variables(verdict: SparkVerdict) -> Iterator[Finding]:
    if verdict.before is None or verdict.after is None:
        return
    for number, before in verdict.before.variables.items():
        after = verdict.after.variables.get(number, frozenset())
        for name in sorted(before - after):
            effect = "Spark starts without it, and what it held is lost."
            advice = "If that is not meant, declare it in init()."
            yield Finding("variable_removed", f"The processor op{number} lacks the variable {name}.", effect, advice)
        for name in sorted(after - before):
            change = f"The processor op{number} has the new variable {name}."
            yield Finding("variable_added", change, "It is empty for every key at first.", "Nothing.")


def plan_findings(recorded: QueryPlan, plan: QueryPlan) -> Iterator[Finding]:
    """Yield the differences from the plan that the store recorded of the query."""
    yield from _mode(recorded, plan)
    for number, (before, after) in enumerate(zip(recorded.inputs, plan.inputs, strict=False)):
        if before.operator == after.operator:
            yield from _inputs(f"op{number}", before, after)
    if recorded.watermarks != plan.watermarks:
        texts = ["; ".join(watermarks) or "no watermark" for watermarks in (recorded.watermarks, plan.watermarks)]
        effect = "Other rows count as late, and state is removed at another time; results of append mode come then too."
        rehearse = worded("replay=3", line="--replay 3")
        advice = f"If it is meant, nothing: the state itself fits. To compare first, rehearse it: {rehearse}."
        yield Finding("watermark", f"The watermark was {texts[0]}; now it is {texts[1]}.", effect, advice)
    yield from _results(recorded, plan)


def _mode(recorded: QueryPlan, plan: QueryPlan) -> Iterator[Finding]:
    if recorded.mode != plan.mode:
        effect = "The sink receives other rows, and complete mode never removes state."
        mode = worded(f"mode={recorded.mode!r}", line=f"--mode {recorded.mode}")
        advice = f"Pass {mode} if the query starts with it; else check that the sink expects this."
        yield Finding("mode", f"The output mode was {recorded.mode}; now it is {plan.mode}.", effect, advice)


def _inputs(table: str, before: StateInput, after: StateInput) -> Iterator[Finding]:
    if before.keys != after.keys:
        change = (
            f"The key of {table} was made of {_only(before.keys, after.keys)}; now of {_only(after.keys, before.keys)}."
        )
        yield Finding("key_expression", change, f"The same key means something else. {_MIXED}", _if_meant())
    if before.values != after.values:
        old, new = before.values, after.values
        change = f"The state of {table} was made of {_only(old, new)}; now of {_only(new, old)}."
        effect = f"Spark starts, and goes on from the old values. {_MIXED}"
        yield Finding("value_expression", change, effect, _if_meant())
    if before.conditions != after.conditions:
        old, new = before.conditions, after.conditions
        change = f"What reaches {table} was decided by {_only(old, new)}; now by {_only(new, old)}."
        effect = "The state holds rows by the old rule and from now on by the new one."
        yield Finding("condition", change, effect, _if_meant())


def _only(texts: Sequence[str], others: Iterable[str]) -> str:
    """Return the texts that are different; all of them if only their order or number is."""
    different = [text for text in texts if text not in {*others}] or texts
    return ", ".join(map(_readable, different)) or "nothing"


def _readable(text: str) -> str:
    """Return an expression for people: windows as they are written, and the beginning of a long one."""
    if (window := _WINDOW.match(text)) is not None:
        width, slide = (int(window[part]) / 1_000_000 for part in ("width", "slide"))
        return f"windows of {width:,g} s" + ("" if width == slide else f" every {slide:,g} s")
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _results(recorded: QueryPlan, plan: QueryPlan) -> Iterator[Finding]:
    for table in sorted(recorded.tables.keys() & plan.tables.keys()):
        before, after = recorded.tables[table], plan.tables[table]
        if (before.columns, before.where, before.needs_spark) == (after.columns, after.where, after.needs_spark):
            continue
        names = [", ".join(column.name for column in table_plan.columns) for table_plan in (before, after)]
        what = f"are {names[1]}; they were {names[0]}" if names[0] != names[1] else "or its rows are computed otherwise"
        change = f"The columns of the result of {table} {what}."
        yield Finding("result", change, "The state stays the same; the sink receives other rows.",
                      "Nothing for the state. Check that the sink, and who reads it, expect this.")  # fmt: skip


def code_note(plan: QueryPlan) -> Iterator[Finding]:
    """That the code of Python functions is not compared."""
    texts = [text for inputs in plan.inputs for text in (*inputs.keys, *inputs.values, *inputs.conditions)]
    operators = [inputs.operator for inputs in plan.inputs]
    if any(operator in _OPAQUE for operator in operators) or any(
        "Python" in text or "InPandas" in text for text in texts
    ):
        effect = "What they do with the state is not compared, only the columns of it."
        yield Finding("python_code", "The query runs Python functions.", effect, "Rehearse it: replay=3.")
