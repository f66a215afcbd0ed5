"""Run the tests of `tests/versions` with other Sparks: ``python -m scripts.other_sparks [VERSION…]``.

Each version is installed once, into a folder of the user's cache. All other packages are those of this environment;
its py4j fits every version. With ``STREAMSTATE_NO_INSTALL=1`` nothing is installed: a missing version is an error.
``build/versions`` then has the results of each version, from which ``scripts.compatibility`` makes the documentation.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from scripts.jars import NotInstalledError, cache, jars
from scripts.typecheck import ROOT

OTHERS = ("4.2.1", "4.1.4", "4.0.5", "3.5.8")
"""The newest release of each line before the one in this environment."""
WITH_DELTA = "4.1.4"
"""The version that the jars of Delta for Spark fit."""
RESULTS = ROOT / "build" / "versions"
_PIP = "-m pip install --quiet --disable-pip-version-check --no-input --no-deps --no-compile"
_WHEELS = {"DIST_EXTRA_CONFIG": str(ROOT / "scripts" / "wheels.cfg")}
_PYTEST = ("-m", "pytest", "--quiet", "--durations=5", "--tb=short", "-p", "no:cacheprovider")


def runs_here(spark: str) -> bool:
    """Return whether a version supports this Python."""
    return sys.version_info < (3, 12) or not spark.startswith("3.")


@dataclass(frozen=True)
class Environment:
    """A version of Spark, perhaps with Delta for Spark, whose tests need a session of their own."""

    spark: str
    delta: bool = False

    def __str__(self) -> str:
        return f"{self.spark}+delta" if self.delta else self.spark

    def variables(self, folder: Path) -> dict[str, str]:
        """Return the environment variables for the tests, with Spark in a folder; fetch what is missing."""
        own = {"PYTHONPATH": str(folder), "STREAMSTATE_VERSION_RESULTS": str(RESULTS / f"{self}.json")}
        if self.delta:
            own["STREAMSTATE_DELTA_JARS"] = ",".join(map(str, jars("delta")))
        return own

    @property
    def tests(self) -> str:
        """The path of the tests."""
        return "tests/versions/test_delta.py" if self.delta else "tests/versions"


def folder_of(spark: str) -> Path:
    """Return the folder of a version, which PYTHONPATH has to begin with; install the version if it is missing."""
    if spark == version("pyspark"):
        return ROOT
    sparks = cache() / "sparks"
    folder = sparks / spark
    if folder.is_dir():
        return folder
    if os.environ.get("STREAMSTATE_NO_INSTALL"):
        command = f"{sys.executable} -m pip install --no-deps --target {folder} pyspark=={spark}"
        raise NotInstalledError(f"PySpark {spark} is missing, and STREAMSTATE_NO_INSTALL is set. Install it: {command}")
    sparks.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=sparks, prefix=f".{spark}-") as parts:
        part = Path(parts, spark)
        subprocess.run(
            [sys.executable, *_PIP.split(), "--target", str(part), f"pyspark=={spark}"],
            check=True,
            env=os.environ | _WHEELS,
        )
        try:
            part.rename(folder)
        except OSError:
            if not folder.is_dir():  # otherwise another process was quicker
                raise
    return folder


def run(environment: Environment, folder: Future[Path], given: argparse.Namespace) -> tuple[bool, str]:
    """Run the tests in an environment once Spark is in its folder; return whether they passed, and the output."""
    options = ["-k", given.chosen] if given.chosen else []
    began = time.monotonic()
    (RESULTS / f"{environment}.json").unlink(missing_ok=True)
    try:
        variables = environment.variables(folder.result())
    except (NotInstalledError, subprocess.CalledProcessError) as error:
        may_lack = environment.delta and not os.environ.get("STREAMSTATE_REQUIRE_SERVICES")
        return may_lack, f"{'Skipped' if may_lack else 'Failed'}: {error}"
    installed = f"installed in {time.monotonic() - began:.0f} s"
    passed, output = separate_tests(str(environment), environment.tests, variables, ["-m", "versions", *options])
    return passed, f"{output}, {installed}"


def separate_tests(name: str, tests: str, variables: dict[str, str], options: list[str]) -> tuple[bool, str]:
    """Run tests in a process with its own environment variables; return whether they passed, and the output."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=f"{name}-") as files:
        done = subprocess.run(
            [sys.executable, *_PYTEST, tests, f"--basetemp={files}/pytest", *options],
            cwd=ROOT,
            env={key: value for key, value in os.environ.items() if key != "SPARK_HOME"} | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    return not done.returncode, f"{done.stdout}tested in {time.monotonic() - began:.0f} s"


def main() -> int:
    """Run the tests with each version, some at once, and print what each of them said."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("versions", nargs="*", metavar="VERSION", help="all by default")
    parser.add_argument("-k", dest="chosen", help="only some tests, as for pytest")
    parser.add_argument("--at-once", type=int, default=2, help="how many versions run at once: 2 by default")
    given = parser.parse_args()
    given.versions = given.versions or [version("pyspark"), *OTHERS]
    for spark in given.versions:
        if not runs_here(spark):
            print(f"=== PySpark {spark}\nSkipped: it supports Python up to 3.11.")
    given.versions = [spark for spark in given.versions if runs_here(spark)]
    environments = [Environment(spark) for spark in given.versions]
    environments += [Environment(WITH_DELTA, delta=True)] * (WITH_DELTA in given.versions)
    failed = []
    with ThreadPoolExecutor(given.at_once) as installing, ThreadPoolExecutor(given.at_once) as running:
        folders = {spark: installing.submit(folder_of, spark) for spark in given.versions}
        results = running.map(lambda environment: run(environment, folders[environment.spark], given), environments)
        for environment, (passed, output) in zip(environments, results, strict=True):
            print(f"=== PySpark {environment}\n{output}", flush=True)
            if not passed:
                failed.append(str(environment))
    if failed:
        print(f"Failed with PySpark {', '.join(failed)}.", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
