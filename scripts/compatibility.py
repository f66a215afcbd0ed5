"""Write what ``make test-versions`` found into the documentation: ``python -m scripts.compatibility``.

The table of capabilities is a part of ``docs/reference/compatibility.md``; private interfaces have a page of their own.
``--check`` writes nothing, and fails if a page says something else.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path

from scripts.other_sparks import OTHERS, RESULTS, runs_here
from scripts.private_interfaces import Uses, interfaces
from scripts.typecheck import ROOT

CAPABILITIES = ROOT / "docs" / "reference" / "compatibility.md"
INTERFACES = ROOT / "docs" / "reference" / "private_interfaces.md"
TESTS = ROOT / "tests" / "versions"
PARTS = ("running", "reading", "plans", "again", "check", "variables", "state_writing", "delta")
"""The files of the tests, in the order of the table."""
BEGIN, END = "% The run of make test-versions wrote this table.\n", "% End of the table.\n"
_SENTENCE = re.compile(r"(?P<what>.+) needs Spark (?P<since>[\d.]+) or later; this is Spark [\d.]+\.")

Results = dict[str, dict[str, dict[str, str]]]
"""For each version what its run found: ``environment``, ``capabilities`` and ``interfaces``."""


class NoResultsError(Exception):
    """A version was not run, or its run failed."""


def results() -> Results:
    """Read what the runs of all versions found, the newest version first."""
    found: Results = {}
    for spark in (version("pyspark"), *OTHERS):
        parts = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(RESULTS.glob(f"{spark}*.json"))]
        if not parts:
            raise NoResultsError(f"There is no result for Spark {spark}. Run `make test-versions`.")
        found[spark] = {kind: {name: text for part in parts for name, text in part[kind].items()} for kind in parts[0]}
    return found


def capabilities() -> list[str]:
    """Return what the tests show, from their markers."""
    trees = [ast.parse((TESTS / f"test_{part}.py").read_text(encoding="utf-8")) for part in PARTS]
    marks = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args]
    return [str(ast.literal_eval(mark.args[0])) for mark in marks if ast.unparse(mark.func) == "pytest.mark.versions"]


def capability_table(found: Results) -> str:
    """Return the table of capabilities, with the environments, and the sentences of refusals below."""
    ran = {spark: result["environment"] for spark, result in found.items()}
    rows = [
        ("**Java**", *(of["java"].partition(".")[0] for of in ran.values())),
        ("**Scala**", *(of["scala"] for of in ran.values())),
        *((name, *(_cell(result["capabilities"].get(name)) for result in found.values())) for name in capabilities()),
    ]
    said = dict.fromkeys(
        f"- {match['what']} needs Spark {match['since']} or later."
        for result in found.values()
        for text in result["capabilities"].values()
        if (match := _SENTENCE.match(text))
    )
    sentences = ["", "Where a call is refused, nothing is written. The errors say:", "", *said] if said else []
    return "\n".join([*_table(("Spark", *found), rows), *sentences, ""])


def interface_page(found: Results) -> str:
    """Return the page of private interfaces."""
    text = INTERFACES_TOP
    for title, uses in (
        ("Classes of the JVM", interfaces().classes),
        ("Attributes of PySpark", interfaces().attributes),
    ):
        rows = [
            (*row, *(result["interfaces"].get(name, "no") for result in found.values())) for name, row in used(uses)
        ]
        text += f"\n## {title}\n\n" + "\n".join(_table(("name", "used in", *map(_line, found)), rows)) + "\n"
    return text


def used(uses: Uses) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield each name with the first two cells of its row."""
    for name, modules in sorted(uses.items()):
        listed = "<br>".join(f"`{module.removeprefix('streamstate.')}`" for module in sorted(modules))
        yield name, (f"`{name.removeprefix('org.apache.spark.')}`", listed)


INTERFACES_TOP = """\
# Private interfaces of Spark

Spark has no public interface for some of what streamstate does: plan an epoch, read the plan of a query, write state.
The tables list the private ones that it uses, from its code, and whether each version of Spark has them, as found
by a run of `make test-versions` with the versions in [](compatibility.md). "elsewhere" means in another
package, where streamstate finds it. Names of classes are below `org.apache.spark`, modules below `streamstate`.

What a version lacks affects only the calls that need it. Their errors name the interface. If that happens with a
version that is newer than these, please report it.

Beside these, `sql.kafka010.SubscribeStrategy` of the Kafka connector lets the broker be asked with the query's options.
"""


def _cell(text: str | None) -> str:
    if text is None:
        return "not tested"
    match = _SENTENCE.match(text)
    return f"from {match['since']} on" if match else text


def _line(spark: str) -> str:
    return ".".join(spark.split(".")[:2])


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    cells = [*head]
    return [f"| {' | '.join(row)} |" for row in (cells, ["---"] * len(cells), *rows)]


def _pages() -> dict[Path, str]:
    """Return the pages as they should be."""
    found = results()
    before, _, rest = CAPABILITIES.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    return {
        CAPABILITIES: f"{before}{BEGIN}\n{capability_table(found)}\n{END}{after}",
        INTERFACES: interface_page(found),
    }


def main() -> int:
    """Write the pages, or check them."""
    if not all(map(runs_here, OTHERS)):
        print("The documentation was not compared: only Python 3.11 runs every version.")
        return 0
    try:
        pages = _pages()
    except NoResultsError as error:
        print(error, file=sys.stderr)
        return 1
    differing = [page for page, text in pages.items() if not page.is_file() or page.read_text(encoding="utf-8") != text]
    if "--check" in sys.argv[1:]:
        for page in differing:
            print(
                f"{page.relative_to(ROOT)} is not what the run found: python -m scripts.compatibility", file=sys.stderr
            )
        return bool(differing)
    for page in differing:
        page.write_text(pages[page], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
