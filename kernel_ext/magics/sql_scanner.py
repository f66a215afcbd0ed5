"""A scanner of unfinished SQL, for completion: the relations that a statement names, and what may come next.

A statement that is being typed does not parse yet. A scan of its words finds the relations and their aliases, and
what is expected at the end.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_SELECT = "SELECT FROM WHERE GROUP ORDER BY HAVING LIMIT OFFSET QUALIFY WINDOW WITH AS ON USING DISTINCT VALUES UNNEST"
_CONDITIONS = "AND OR NOT IN IS NULL LIKE ILIKE BETWEEN EXISTS CASE WHEN THEN ELSE END CAST TRUE FALSE INTERVAL"
_SETS = "UNION ALL INTERSECT EXCEPT JOIN LEFT RIGHT FULL INNER CROSS OUTER LATERAL"
_ORDER = "ASC DESC NULLS FIRST LAST OVER PARTITION FILTER"
_TRAVEL = "VERSION TIMESTAMP OF"
KEYWORDS = tuple(" ".join((_SELECT, _CONDITIONS, _SETS, _ORDER, _TRAVEL)).split())
"""The keywords to offer."""

_TOKEN = re.compile(
    r"""(?P<comment>--[^\n]*\n?|/\*.*?(?:\*/|\Z))
      | (?P<text>'(?:[^']|'')*(?:'|\Z))
      | (?P<name>(?:\w+|"(?:[^"]|"")*(?:"|\Z)|`[^`]*(?:`|\Z))(?:\.(?:\w+|"(?:[^"]|"")*(?:"|\Z)|`[^`]*(?:`|\Z)))*\.?)
      | (?P<mark>[^\s\w])""",
    re.DOTALL | re.VERBOSE,
)
_BEHIND_FROM = "WHERE GROUP ORDER HAVING LIMIT OFFSET QUALIFY WINDOW UNION INTERSECT EXCEPT SELECT ON USING"
_ENDS_FROM = set(_BEHIND_FROM.split())
_JOINING = "JOIN LEFT RIGHT FULL INNER CROSS OUTER LATERAL NATURAL ASOF SEMI ANTI POSITIONAL"
_JOINS = set(_JOINING.split())
_NO_ALIAS = {*KEYWORDS, *_JOINS, "FOR", "SYSTEM_TIME"}


@dataclass
class Named:
    """A relation that a statement names."""

    relation: str
    alias: str = ""


class Scan:
    """The findings of a scan of a statement.

    Example:
        >>> Scan("SELECT * FROM delays VERSION AS OF 12 AS d JOIN ").named
        [Named(relation='delays', alias='d')]
        >>> Scan("SELECT * FROM delays VERSION AS OF ").expects
        'version'
    """

    def __init__(self, sql: str) -> None:
        self.named: list[Named] = []
        """The relations, in order."""
        self.defined: list[str] = []
        """The names that WITH defines."""
        self.expects = "expression"
        """What may come next: ``relation``, ``after relation``, ``version``, ``timestamp``, ``expression``, or
        ``nothing`` inside a comment."""
        self.open_text = ""
        """A string literal that is still open at the end, with its quote; else empty."""
        self._words: list[str] = []
        # For each open parenthesis, whether it contains the relations of a FROM at this point.
        self._in_from = [False]
        for match in _TOKEN.finditer(sql):
            self._read(str(match.lastgroup), match[0], at_end=match.end() == len(sql))

    def relation_of(self, alias: str) -> str:
        """The relation with an alias or a name; empty if there is none."""
        folded = alias.casefold()
        return next((table.relation for table in self.named if folded in (table.alias, table.relation.casefold())), "")

    def _read(self, kind: str, token: str, *, at_end: bool) -> None:
        if kind == "comment":
            if at_end and not token.endswith(("\n", "*/")):
                self.expects = "nothing"
        elif kind == "text" and at_end and token.count("'") % 2:  # a doubled quote is a character
            self.open_text = token
        else:
            self._take(kind, token)

    def _take(self, kind: str, token: str) -> None:
        """Process one word: what it names, and what may follow it."""
        word = token.upper() if kind == "name" else token
        if kind == "mark":
            self._mark(token)
        elif kind == "text" or (self.expects in ("version", "timestamp") and word.isdigit()):
            if self.expects in ("version", "timestamp"):
                self.expects = "after relation"  # the value completes the relation
        elif self.expects == "relation" and word not in _NO_ALIAS:
            self.named.append(Named(_unquoted(token)))
            self.expects = "after relation"
        else:
            self._word(word, token)
        self._words.append(word)

    def _mark(self, mark: str) -> None:
        if mark == "(":
            if self._words[-1:] == ["AS"] and len(self._words) > 1 and not self._in_from[-1]:
                self.defined.append(self._words[-2].lower())
            self._in_from.append(False)
            self.expects = "expression"
        elif mark == ")":
            if len(self._in_from) > 1:
                self._in_from.pop()
            self.expects = "after relation" if self._in_from[-1] else "expression"
        elif mark == "," and self._in_from[-1]:
            self.expects = "relation"
        elif mark == ";":
            self._in_from, self.expects = [False], "expression"

    def _word(self, word: str, token: str) -> None:
        before = self._words[-2:]
        if word == "FROM":
            self._in_from[-1], self.expects = True, "relation"
        elif word in _JOINS:
            self._in_from[-1], self.expects = True, "relation" if word == "JOIN" else "after relation"
        elif word in _ENDS_FROM:
            self._in_from[-1] = word in ("ON", "USING") and self._in_from[-1]
            self.expects = "expression"
        elif word == "OF" and before[-1:] == ["AS"] and before[:1] in (["VERSION"], ["TIMESTAMP"], ["SYSTEM_TIME"]):
            self.expects = "version" if before[0] == "VERSION" else "timestamp"
        elif self.expects == "after relation" and word not in _NO_ALIAS and self.named:
            self.named[-1].alias = _unquoted(token).casefold()


def _unquoted(name: str) -> str:
    return name.replace('"', "").replace("`", "").rstrip(".")
