"""The query's names for columns of a state table that Spark has named."""

from __future__ import annotations

from streamstate.errors import StoreError, worded
from streamstate.snapshots.store.query_plans.query_plan import TablePlan
from streamstate.snapshots.store.query_plans.spark_names import named_by_spark
from streamstate.state_inspect.captured_query import CapturedQuery
from streamstate.state_inspect.keys.key_rows import row_number_column
from streamstate.state_inspect.results.results import shown_columns, state_of


def naming_note(query: CapturedQuery, table: str) -> str:
    """Return a sentence on the columns of a state table that Spark has named; empty if the query named them all."""
    log = query.columns(shown_columns(query, table).state)
    if state_of(table)[1]:
        return ""
    if not is_planned(query):
        if not named_by_spark(log.schema):
            return ""
        return f"Spark has named these columns: the plan of {query.name} is not known. {how_to_plan(query)}"
    known = [f"{own} is {name}" for name, own in key_aliases(query, table).items()]
    number = row_number_column(table, log.key_columns)
    if known and number is not None:
        known.append(f"{number} numbers the rows of a key")
    return f"In the key, {', '.join(known)}." if known else ""


def how_to_plan(query: CapturedQuery) -> str:
    """Return the line that records a query's plan."""
    return worded(
        f'Record it: streamstate.open_store(store)["{query.name}"].describe(build_query).',
        command="Record it: streamstate capture CHECKPOINT --store STORE --code MODULE:FUNCTION.",
    )


def is_planned(query: CapturedQuery) -> bool:
    """Return whether the query's plan at the newest epoch is recorded, or no epoch is captured yet."""
    newest = query.entries().newest
    return newest is None or _plan(query, newest.epoch) is not None


def key_aliases(query: CapturedQuery, table: str) -> dict[str, str]:
    """Return the query's names of key columns that Spark has named, such as those of a join: each with Spark's."""
    newest = query.entries().newest
    plan = None if newest is None or state_of(table)[1] else _plan(query, newest.epoch)
    planned: TablePlan | None = None if plan is None else plan.get(table)
    if planned is None:
        return {}
    log = query.columns(table)
    same = zip(log.key_columns, planned.same, strict=False)
    named = {log.value_columns[at]: own for own, at in same if at is not None and at < len(log.value_columns)}
    return {name: own for name, own in named.items() if name != own and name not in log.key_columns}


def _plan(query: CapturedQuery, epoch: int) -> dict[str, TablePlan] | None:
    try:
        plan = query.plans.at(epoch)
    except StoreError:  # a newer version of streamstate has recorded it
        return {}
    return None if plan is None else dict(plan.tables)
