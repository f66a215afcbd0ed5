"""SQL as far as completing needs to understand it: its words, the relations it names, and what may stand at a place.

What is being written does not parse yet, so no parser is of use here: a scan over the words tells which relations a
statement names, under which aliases, and what is expected next.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

__all__ = ["KEYWORDS", "Named", "Scan", "scan"]

_SELECT = "SELECT FROM WHERE GROUP ORDER BY HAVING LIMIT OFFSET QUALIFY WINDOW WITH AS ON USING DISTINCT VALUES UNNEST"
_CONDITIONS = "AND OR NOT IN IS NULL LIKE ILIKE BETWEEN EXISTS CASE WHEN THEN ELSE END CAST TRUE FALSE INTERVAL"
_SETS = "UNION ALL INTERSECT EXCEPT JOIN LEFT RIGHT FULL INNER CROSS OUTER LATERAL"
_ORDER = "ASC DESC NULLS FIRST LAST OVER PARTITION FILTER"
_TRAVEL = "VERSION TIMESTAMP OF"
KEYWORDS = tuple(" ".join((_SELECT, _CONDITIONS, _SETS, _ORDER, _TRAVEL)).split())
"""The words that are offered."""

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


@dataclass
class Scan:
    """What a scan over the words of a statement found."""

    named: list[Named] = field(default_factory=list)
    """The relations, in their order."""
    defined: list[str] = field(default_factory=list)
    """Names that WITH defines."""
    expects: str = "expression"
    """What may stand at the end: ``relation``, ``after relation``, ``version``, ``timestamp``, ``expression``, or
    ``nothing`` inside a comment."""
    open_text: str = ""
    """The text that is open at the end, its quote first; empty where none is."""

    def relation_of(self, alias: str) -> str:
        """The relation that an alias, or a relation's own name, stands for; empty where there is none."""
        folded = alias.casefold()
        return next((one.relation for one in self.named if folded in (one.alias, one.relation.casefold())), "")


def scan(sql: str) -> Scan:
    """What a statement names, and what may stand at its end.

    Example:
        >>> scan("SELECT * FROM delays VERSION AS OF 12 AS d JOIN ").named
        [Named(relation='delays', alias='d')]
        >>> scan("SELECT * FROM delays VERSION AS OF ").expects
        'version'
    """
    return _Scanner().over(sql)


class _Scanner:
    """Goes over the words of a statement once."""

    def __init__(self) -> None:
        self._scan = Scan()
        self._words: list[str] = []
        # For each open parenthesis, whether a FROM's list of relations is being written in it.
        self._in_from = [False]

    def over(self, sql: str) -> Scan:
        """The whole of it."""
        for match in _TOKEN.finditer(sql):
            kind, token = str(match.lastgroup), match[0]
            at_end = match.end() == len(sql)
            self._scan.open_text = token if at_end and kind == "text" and not _closed(token) else ""
            if kind == "comment":
                if at_end and not token.endswith(("\n", "*/")):
                    self._scan.expects = "nothing"
                continue
            if not self._scan.open_text:
                self._take(kind, token)
        return self._scan

    def _take(self, kind: str, token: str) -> None:
        """One word: what it names, and what may stand after it."""
        word = token.upper() if kind == "name" else token
        if kind == "mark":
            self._mark(token)
        elif kind == "text" or (self._scan.expects in ("version", "timestamp") and word.isdigit()):
            self._value()
        elif self._scan.expects == "relation" and word not in _NO_ALIAS:
            self._scan.named.append(Named(_unquoted(token)))
            self._scan.expects = "after relation"
        else:
            self._word(word, token)
        self._words.append(word)

    def _mark(self, mark: str) -> None:
        if mark == "(":
            if self._words[-1:] == ["AS"] and len(self._words) > 1 and not self._in_from[-1]:
                self._scan.defined.append(self._words[-2].lower())
            self._in_from.append(False)
            self._scan.expects = "expression"
        elif mark == ")":
            if len(self._in_from) > 1:
                self._in_from.pop()
            self._scan.expects = "after relation" if self._in_from[-1] else "expression"
        elif mark == "," and self._in_from[-1]:
            self._scan.expects = "relation"
        elif mark == ";":
            self._in_from, self._scan.expects = [False], "expression"

    def _value(self) -> None:
        """A number or a text; behind AS OF a relation goes on."""
        if self._scan.expects in ("version", "timestamp"):
            self._scan.expects = "after relation"

    def _word(self, word: str, token: str) -> None:
        before = self._words[-2:]
        if word == "FROM":
            self._in_from[-1], self._scan.expects = True, "relation"
        elif word in _JOINS:
            self._in_from[-1], self._scan.expects = True, "relation" if word == "JOIN" else "after relation"
        elif word in _ENDS_FROM:
            self._in_from[-1] = word in ("ON", "USING") and self._in_from[-1]
            self._scan.expects = "expression"
        elif word == "OF" and before[-1:] == ["AS"] and before[:1] in (["VERSION"], ["TIMESTAMP"], ["SYSTEM_TIME"]):
            self._scan.expects = "version" if before[0] == "VERSION" else "timestamp"
        elif self._scan.expects == "after relation" and word not in _NO_ALIAS and self._scan.named:
            self._scan.named[-1].alias = _unquoted(token).casefold()


def _closed(text: str) -> bool:
    """Whether a text's quote is closed; two quotes in it are one of its characters."""
    return text.count("'") % 2 == 0


def _unquoted(name: str) -> str:
    return name.replace('"', "").replace("`", "").rstrip(".")
