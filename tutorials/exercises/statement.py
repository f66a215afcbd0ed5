"""Exercises in which the learner writes a statement in SQL over a query's captured state."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamstate.tutorials.exercises.answers import NOT_YET, Answer
from streamstate.tutorials.exercises.construct import Construct

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

    from streamstate.state_inspect import Store
    from streamstate.tutorials.exercises.sampling import Case

_CASES = 12
"""How many values of its parameters a statement is tried with."""


@dataclass(frozen=True, kw_only=True)
class Statement(Construct):
    """A statement to write that returns one number. It is compared with the solution over the learner's own store.

    The solution and the typical wrong answers are statements as well. A case has the values of the parameters.

    Args:
        store: the store, in the folder of the notebook.
        query: the query whose state is asked for.
        until: the last epoch that a case may need.
    """

    store: Path
    query: str
    until: int
    solution: Any
    pure: bool = False
    limit: float = 10.0  # the first one reads the changelog

    def check(self, function: Any) -> Answer:
        """Compare a learner's statement with the solution, at several epochs."""
        if function is None or function is ...:
            return Answer("waiting", NOT_YET, ["Write the statement, then run this cell again."])
        if not isinstance(function, str):
            return Answer("wrong", "Pass the statement as text.", [f"This is no text, but {type(function).__name__}."])
        import streamstate as ss

        if not self.store.exists() or self.query not in (store := ss.open_store(self.store)).queries():
            return Answer("waiting", NOT_YET, ["The state is not captured yet. Run the cells above, then this one."])
        if self.until not in store[self.query].captured():
            return Answer("waiting", NOT_YET, [f"Epoch {self.until} is not captured yet. Wait, then run this again."])
        asked = replace(self, run=lambda statement, case: _number(store, statement, dict(self._named(case))))
        return asked.check_cases(function)

    def _named(self, case: Case) -> zip[tuple[str, Any]]:
        return zip(self.arguments, case, strict=True)


def spans_of_epochs(until: int) -> Callable[[], SearchStrategy[Case]]:
    """Return what makes cases of two epochs, the first before the second, always the same ones."""

    def cases() -> SearchStrategy[Case]:
        from hypothesis import strategies as st

        draw = random.Random(0)  # noqa: S311 - a seed
        return st.sampled_from([tuple(sorted(draw.sample(range(until + 1), 2))) for _ in range(_CASES)])

    return cases


def _number(store: Store, statement: Any, parameters: dict[str, Any]) -> Any:
    """The number that a statement returns; otherwise, what it returns instead, in words."""
    named = set(re.findall(r"\$(\w+)", statement))
    rows = store.sql(statement, params={name: value for name, value in parameters.items() if name in named}).to_arrow()
    if rows.shape != (1, 1):
        return f"{rows.num_rows} rows of {rows.num_columns} columns"
    value = rows.column(0)[0].as_py()
    return "NULL" if value is None else value
