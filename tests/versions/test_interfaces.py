"""Which of the private interfaces that streamstate uses this Spark has."""

from __future__ import annotations

from pathlib import Path

import pyspark
import pytest

from scripts.private_interfaces import interfaces, private_names
from streamstate.errors import SparkVersionError
from streamstate.snapshots.spark.private_classes import java_class
from versions.queries import Totals


@pytest.mark.versions
def test_private_interfaces(totals: Totals, found_interfaces: dict[str, str]) -> None:
    """The run writes down which are there; the other tests say what lacks them."""
    for name in interfaces().classes:
        found_interfaces[name] = _place(totals, name)
    named = private_names(Path(pyspark.__file__).parent)
    found_interfaces |= {name: "yes" if name in named else "no" for name in interfaces().attributes}
    assert list(found_interfaces.values()).count("no") < len(found_interfaces) / 2


def _place(totals: Totals, name: str) -> str:
    for kind in ("", "$"):
        try:
            found = str(java_class(totals.spark._jvm, name + kind).getName())
        except SparkVersionError:
            continue
        return "yes" if found == name + kind else "elsewhere"
    return "no"
