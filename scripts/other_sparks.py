"""Run the tests of `tests/versions` with other Sparks: ``python -m scripts.other_sparks [VERSION…]``.

Each version is installed once, into a folder of the user's cache. All other packages are those of this environment;
its py4j fits every version. With ``STREAMSTATE_NO_INSTALL=1`` nothing is installed: a missing version is an error.
``build/versions`` then has the results of each version, from which ``scripts.compatibility`` makes the documentation.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from scripts.typecheck import ROOT

OTHERS = ("4.2.1", "4.1.4", "4.0.5", "3.5.8")
"""The newest release of each line before the one in this environment."""
DELTA = {"4.1.4": ("io.delta:delta-spark_4.1_2.13:4.2.0", "io.delta:delta-storage:4.2.0")}
"""The jars of Delta for Spark that fit a version; Spark has all that they need."""
RESULTS = ROOT / "build" / "versions"
AT_ONCE = 2
_PIP = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", "--no-deps")
_PYTEST = ("-m", "pytest", "-m", "versions", "--quiet", "--tb=short", "-p", "no:cacheprovider")


def runs_here(spark: str) -> bool:
    """Return whether a version supports this Python."""
    return sys.version_info < (3, 12) or not spark.startswith("3.")


class NotInstalledError(Exception):
    """Something is missing, and cannot or may not be installed."""


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
            own["STREAMSTATE_DELTA_JARS"] = ",".join(str(jar_of(artifact)) for artifact in DELTA[self.spark])
        return own

    @property
    def tests(self) -> str:
        """The path of the tests."""
        return "tests/versions/test_delta.py" if self.delta else "tests/versions"


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "streamstate")


def folder_of(spark: str) -> Path:
    """Return the folder of a version, which PYTHONPATH has to begin with; install the version if it is missing."""
    if spark == version("pyspark"):
        return ROOT
    cache = _cache() / "sparks"
    folder = cache / spark
    if folder.is_dir():
        return folder
    if os.environ.get("STREAMSTATE_NO_INSTALL"):
        command = f"{sys.executable} -m pip install --no-deps --target {folder} pyspark=={spark}"
        raise NotInstalledError(f"PySpark {spark} is missing, and STREAMSTATE_NO_INSTALL is set. Install it: {command}")
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix=f".{spark}-") as parts:
        part = Path(parts, spark)
        subprocess.run([*_PIP, "--target", str(part), f"pyspark=={spark}"], check=True)
        try:
            part.rename(folder)
        except OSError:
            if not folder.is_dir():  # otherwise another process was quicker
                raise
    return folder


def jar_of(artifact: str) -> Path:
    """Return the jar of an artifact of Maven, which is fetched once, without what it depends on."""
    _, name, release = artifact.split(":")
    jar = _cache() / "jars" / f"{name}-{release}.jar"
    if jar.is_file():
        return jar
    if os.environ.get("STREAMSTATE_NO_INSTALL") or not shutil.which("mvn"):
        raise NotInstalledError(f"{artifact} is missing. Install Maven, which fetches it.")
    jar.parent.mkdir(parents=True, exist_ok=True)
    # Copied from Maven's own folder, which is not always below HOME.
    with tempfile.TemporaryDirectory(dir=jar.parent) as parts:
        subprocess.run(
            ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={parts}"], check=True
        )
        Path(parts, jar.name).replace(jar)
    return jar


def run(environment: Environment, folder: Future[Path], options: list[str]) -> tuple[bool, str]:
    """Run the tests in an environment once Spark is in its folder; return whether they passed, and the output."""
    began = time.monotonic()
    (RESULTS / f"{environment}.json").unlink(missing_ok=True)
    try:
        variables = environment.variables(folder.result())
    except (NotInstalledError, subprocess.CalledProcessError) as error:
        may_lack = environment.delta and not os.environ.get("STREAMSTATE_REQUIRE_DELTA")
        return may_lack, f"{'Skipped' if may_lack else 'Failed'}: {error}"
    installed = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=f"versions-{environment}-") as files:
        command = [sys.executable, *_PYTEST, environment.tests, f"--basetemp={files}/pytest", *options]
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={key: value for key, value in os.environ.items() if key != "SPARK_HOME"} | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    times = f"installed in {installed - began:.0f} s, tested in {time.monotonic() - installed:.0f} s"
    return not done.returncode, f"{done.stdout}{times}"


def main() -> int:
    """Run the tests with each version, two at a time, and print what each of them said."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("versions", nargs="*", metavar="VERSION", default=[version("pyspark"), *OTHERS])
    parser.add_argument("-k", dest="chosen", help="only some tests, as for pytest")
    given = parser.parse_args()
    options = ["-k", given.chosen] if given.chosen else []
    for spark in given.versions:
        if not runs_here(spark):
            print(f"=== PySpark {spark}\nSkipped: it supports Python up to 3.11.")
    given.versions = [spark for spark in given.versions if runs_here(spark)]
    environments = [Environment(spark) for spark in given.versions]
    environments += [Environment(spark, delta=True) for spark in given.versions if spark in DELTA]
    failed = []
    with ThreadPoolExecutor(AT_ONCE) as installing, ThreadPoolExecutor(AT_ONCE) as running:
        folders = {spark: installing.submit(folder_of, spark) for spark in given.versions}
        results = running.map(lambda environment: run(environment, folders[environment.spark], options), environments)
        for environment, (passed, output) in zip(environments, results, strict=True):
            print(f"=== PySpark {environment}\n{output}", flush=True)
            if not passed:
                failed.append(str(environment))
    if failed:
        print(f"Failed with PySpark {', '.join(failed)}.", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
