"""Run the tests of `tests/services`, each group beside its real service: ``python -m scripts.services [GROUP…]``.

A group has a process and a Spark session of its own, with the jars that it needs; these are fetched once. Where that is
not possible a group is skipped with the reason, or fails if ``STREAMSTATE_REQUIRE_SERVICES=1``.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version

from scripts.jars import NotInstalledError, jars
from scripts.other_sparks import WITH_DELTA, folder_of, separate_tests


@dataclass(frozen=True)
class Group:
    """Tests that share a service: the set of jars for Spark, and the version of Spark that they fit."""

    name: str
    jars: str
    spark: str = version("pyspark")
    fetched: tuple[str, ...] = ()
    """Further sets of jars, which the tests start themselves."""

    def variables(self) -> dict[str, str]:
        """Return the environment variables for the tests; fetch what is missing."""
        for name in self.fetched:
            jars(name)
        own = {"STREAMSTATE_SERVICE": self.name, "STREAMSTATE_JARS": ",".join(map(str, jars(self.jars)))}
        if self.spark == version("pyspark"):
            return own
        quick = os.environ.get("SPARK_SUBMIT_OPTS", "").split()
        without = [option for option in quick if "SharedArchiveFile" not in option]  # has the classes of one version
        return own | {"PYTHONPATH": str(folder_of(self.spark)), "SPARK_SUBMIT_OPTS": " ".join(without)}


GROUPS = {
    group.name: group
    for group in (
        Group("kafka", "kafka", fetched=("kafka-broker",)),
        Group("delta", "delta", spark=WITH_DELTA),
        Group("s3", "s3"),
    )
}


def run(group: Group, options: list[str]) -> tuple[bool, str]:
    """Run a group; return whether it passed, and the output."""
    try:
        variables = group.variables()
    except (NotInstalledError, subprocess.CalledProcessError) as error:
        required = os.environ.get("STREAMSTATE_REQUIRE_SERVICES") == "1"
        return not required, f"{'Failed' if required else 'Skipped'}: {error}"
    return separate_tests(group.name, f"tests/services/{group.name}", variables, options)


def main() -> int:
    """Run the groups, some at once, and print what each of them said."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("groups", nargs="*", metavar="GROUP", default=[*GROUPS], help=f"{', '.join(GROUPS)}")
    parser.add_argument("-k", dest="chosen", help="only some tests, as for pytest")
    parser.add_argument("-m", dest="marks", default="services and not exhaustive", help="marks, as for pytest")
    parser.add_argument("--quick", action="store_true", help="leave out the slow tests")
    parser.add_argument("--at-once", type=int, default=2, help="how many groups run at once: 2 by default")
    given = parser.parse_args()
    if unknown := [name for name in given.groups if name not in GROUPS]:
        parser.error(f"there is no group {unknown[0]}: {', '.join(GROUPS)}")
    marks = f"({given.marks}) and not slow" if given.quick else given.marks
    options = ["-m", marks, *(["-k", given.chosen] if given.chosen else [])]
    failed = []
    with ThreadPoolExecutor(given.at_once) as running:
        results = running.map(lambda name: run(GROUPS[name], options), given.groups)
        for name, (passed, output) in zip(given.groups, results, strict=True):
            print(f"=== {name}\n{output}", flush=True)
            if not passed:
                failed.append(name)
    if failed:
        print(f"Failed: {', '.join(failed)}.", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
