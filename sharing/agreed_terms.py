"""The terms of a share as its recipient sees them: what a server answers, and what the recipient shows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from streamstate.errors import ShareError
from streamstate.operations.report_html import report
from streamstate.sharing.contract import Contract
from streamstate.sharing.contract_list import change_texts, limit_texts, lines_cell
from streamstate.sharing.suggestion import STATES, PartialTerms, Suggestion, partial_terms
from streamstate.snapshots.calls.html import table
from streamstate.snapshots.store.names import is_name


@dataclass(frozen=True)
class AgreedTerms:
    """The terms of a share and the newest suggestion; :meth:`SharedStore.terms` returns them.

    Attributes:
        share: the share, which is also the name of the contract.
        query: the query where it runs.
        version: how often the terms were changed, from 1 on.
        terms: the terms in force, without conditions.
        restricted: the tables of which a condition chooses the rows. It is not shown: it may use columns that are not
            granted.
        suggestion: the terms that the recipient suggested last, and their state; None: it has suggested none.
    """

    share: str
    query: str
    version: int
    terms: PartialTerms
    restricted: tuple[str, ...] = ()
    suggestion: Suggestion | None = None

    @classmethod
    def of(cls, contract: Contract) -> AgreedTerms:
        """Return the terms of a contract, without what its recipient must not see."""
        terms, suggestion = contract.terms, contract.suggestion
        shown = PartialTerms(
            columns={granted.name: granted.columns for granted in terms.tables},
            since=terms.since,
            until=terms.until,
            freshness=terms.freshness,
            keep=terms.keep,
            price=terms.price,
        )
        restricted = tuple(granted.name for granted in terms.tables if granted.where is not None)
        # The number would tell how many contracts there are with others.
        newest = None if suggestion is None else replace(suggestion, number=-1)
        return cls(contract.name, terms.query, contract.version, shown, restricted, newest)

    def to_json(self) -> str:
        """Return the terms as JSON, as a server answers."""
        suggestion: dict[str, Any] | None = None
        if (newest := self.suggestion) is not None:
            at = None if newest.at is None else newest.at.isoformat()
            suggestion = {"state": newest.state, "at": at, "terms": json.loads(newest.terms.to_json())}
        about = {"share": self.share, "query": self.query, "version": self.version, "restricted": self.restricted}
        return json.dumps(about | {"terms": json.loads(self.terms.to_json()), "suggestion": suggestion})

    @classmethod
    def from_json(cls, text: bytes) -> AgreedTerms:
        """Return the terms that a server answered.

        Raises:
            ShareError: the answer is none.
        """
        try:
            found = json.loads(text)
            share, query, version = found["share"], found["query"], int(found["version"])
            terms, newest = partial_terms(found["terms"]), found["suggestion"]
            restricted = tuple(name for name in terms.columns or () if name in found["restricted"])
            suggestion = None
            if newest is not None:
                at = None if newest["at"] is None else datetime.fromisoformat(newest["at"])
                suggestion = Suggestion(partial_terms(newest["terms"]), STATES[STATES.index(newest["state"])], at=at)
            if not (is_name(share) and is_name(query)):
                raise ValueError("its names are no names")
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise ShareError("The server's answer about the terms is none that streamstate understands.") from error
        return cls(share, query, version, terms, restricted, suggestion)

    def _lines(self) -> Iterator[str]:
        for name, columns in (self.terms.columns or {}).items():
            yield f"{name}: {', '.join(columns)}{'; rows that meet a condition' if name in self.restricted else ''}"
        yield from limit_texts(self.terms)

    def _title(self) -> str:
        return f"{self.share}, version {self.version}"

    def __repr__(self) -> str:
        newest = self.suggestion
        suggested = [] if newest is None else [f"suggested ({newest.state}): {'; '.join(change_texts(newest.terms))}"]
        return "\n  ".join([f"<AgreedTerms of {self._title()}", *self._lines(), *suggested]) + ">"

    def _repr_html_(self) -> str:
        newest = self.suggestion
        heads = ["terms in force", *([] if newest is None else [f"suggested: {newest.state}"])]
        sides = [self._lines(), *([] if newest is None else [change_texts(newest.terms)])]
        return report(table(heads, [map(lines_cell, sides)], caption=self._title()))
