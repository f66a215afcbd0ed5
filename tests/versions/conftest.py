"""What each version of Spark gives: everything, or a refusal that names the version that is needed.

``@pytest.mark.versions("what it shows", since="4.2")`` marks the test of one capability. Under an older Spark the same
test passes if streamstate refuses, names that version, and leaves nothing behind. ``new_in_spark="4.0"`` marks what
Spark itself does not have before, and ``record_property("answer", …)`` says what is given instead.
``scripts/other_sparks.py`` runs the tests with each version; the environment variable ``STREAMSTATE_VERSION_RESULTS``
names the file for the results.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from streamstate.errors import StreamStateError
from versions.queries import Totals, spark_version

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RESULTS = os.environ.get("STREAMSTATE_VERSION_RESULTS")
_FOUND: dict[str, dict[str, str]] = {"environment": {}, "capabilities": {}, "interfaces": {}}


@pytest.fixture(scope="session")
def totals(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Totals:
    """A query of three epochs that ``ss.start`` ran and captured."""
    jvm = spark._jvm
    assert jvm is not None
    _FOUND["environment"] |= {
        "spark": spark.version,
        "java": str(jvm.java.lang.System.getProperty("java.version")),
        "scala": str(jvm.scala.util.Properties.versionNumberString()),
        "python": platform.python_version(),
    }
    return Totals.started(spark, tmp_path_factory.mktemp("totals"))


@pytest.fixture
def found_interfaces() -> dict[str, str]:
    """Where the test of private interfaces leaves what it finds."""
    return _FOUND["interfaces"]


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Run a capability's test, or check how an older Spark is refused."""
    marker = pyfuncitem.get_closest_marker("versions")
    if marker is None or not marker.args:
        return (yield)
    [capability], since = marker.args, marker.kwargs.get("since", "3.5")
    if _before(new := marker.kwargs.get("new_in_spark", "3.5")):
        _FOUND["capabilities"][capability] = f"new in Spark {new}"
        pytest.skip(f"new in Spark {new}")
    if not _before(since):
        result = yield
        _FOUND["capabilities"][capability] = str(dict(pyfuncitem.user_properties).get("answer", "yes"))
        return result
    with pytest.raises(StreamStateError, match=f"Spark {since}") as refused:
        yield
    _FOUND["capabilities"][capability] = str(refused.value).splitlines()[0]
    folder = pyfuncitem.funcargs.get("tmp_path")
    assert not isinstance(folder, Path) or not [*folder.iterdir()], "The refused call left something behind."
    return True


def _before(version: str) -> bool:
    return spark_version() < tuple(map(int, version.split(".")))


def pytest_sessionfinish(exitstatus: int) -> None:
    """Write the results of a whole run that passed."""
    if RESULTS and exitstatus == pytest.ExitCode.OK:
        Path(RESULTS).parent.mkdir(parents=True, exist_ok=True)
        Path(RESULTS).write_text(json.dumps(_FOUND, indent=2) + "\n", encoding="utf-8")
