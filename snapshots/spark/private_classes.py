"""Spark's private classes, wherever a version keeps them, and calls with as many arguments as they take there.

Names are those of the newest Spark. Reflection, not the version, decides what is called: a version that is not known is
tried like any other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from streamstate.errors import SparkVersionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Packages that are new in Spark 4.1, and in 4.0: before, their classes were one package further up.
_NEW_PACKAGES = re.compile(r"(?<=\.execution\.streaming)\.(?:runtime|checkpointing|operators\.stateful)|\.classic")
# What py4j says of a call that finds nothing.
_MISSING = re.compile(
    r"(?:Method|Constructor) ([\w.$]+\(\[.*\]\)) does not exist|(JavaPackage)' object is not callable"
)


def java_class(jvm: Any, name: str) -> Any:
    """Return Java's own object for a class.

    Raises:
        SparkVersionError: this Spark has no such class.
    """
    from py4j.protocol import Py4JJavaError

    loader, initialize = jvm.java.lang.Thread.currentThread().getContextClassLoader(), True
    for place in _places(name):
        try:
            return jvm.java.lang.Class.forName(place, initialize, loader)
        except Py4JJavaError:
            continue
    raise SparkVersionError.lacks(name, str(jvm.org.apache.spark.package.SPARK_VERSION()))


def spark_class(jvm: Any, name: str) -> Any:
    """Return a class, to call its constructor or a static method.

    Raises:
        SparkVersionError: this Spark has no such class.
    """
    from py4j.java_gateway import JavaClass

    return JavaClass(java_class(jvm, name).getName(), jvm._gateway_client)  # noqa: SLF001 (py4j's own way)


def has_class(jvm: Any, name: str) -> bool:
    """Return whether this Spark has a class."""
    try:
        java_class(jvm, name)
    except SparkVersionError:
        return False
    return True


def scala_object(jvm: Any, name: str) -> Any:
    """Return a Scala object, by its full name without the dollar sign.

    Raises:
        SparkVersionError: this Spark has no such object.
    """
    return java_class(jvm, f"{name}$").getField("MODULE$").get(None)


def new(jvm: Any, name: str, *arguments: Any) -> Any:
    """Return a new object of a class.

    Args:
        jvm: the JVM.
        name: the class.
        *arguments: the first arguments of the newest constructor. The class's own defaults follow; where the
            constructor takes fewer, the last ones are left out.

    Raises:
        SparkVersionError: this Spark has no such class.
    """
    reflected = java_class(jvm, name)
    takes = max(int(constructor.getParameterCount()) for constructor in reflected.getConstructors())
    given = list(arguments[:takes])
    if takes > len(given):
        defaults = scala_object(jvm, name)
        given += [getattr(defaults, f"$lessinit$greater$default${at + 1}")() for at in range(len(given), takes)]
    return spark_class(jvm, name)(*given)


def called(target: Any, method: str, *arguments: Any) -> Any:
    """Return the result of a method that is called with its first arguments, and its own defaults for the others."""
    known = dir(target)
    given = list(arguments)
    while (default := f"{method}$default${len(given) + 1}") in known:
        given.append(getattr(target, default)())
    return getattr(target, method)(*given)


def copied(case: Any, changed: Mapping[int, Any]) -> Any:
    """Return a copy of an object of a case class, with other values for some arguments, which count from 0."""
    fields = [getattr(case, f"copy$default${at + 1}")() for at in range(case.productArity())]
    for at, value in changed.items():
        fields[at] = value
    return case.copy(*fields)


@contextmanager
def private_calls(spark: SparkSession) -> Iterator[None]:
    """Name the private interface if a call in the block finds none: this Spark has another one, or none.

    Raises:
        SparkVersionError: a class, constructor or method is missing.
    """
    from py4j.protocol import Py4JError

    try:
        yield
    except (Py4JError, TypeError) as error:
        missing = _MISSING.search(str(error))
        if missing is None:
            raise
        raise SparkVersionError.lacks(missing[1] or missing[2], spark.version) from error


def has_method(target: Any, name: str) -> bool:
    """Return whether a Java object has a public method."""
    return name in dir(target)


@cache
def _places(name: str) -> tuple[str, ...]:
    """Return the names that a class has had, the newest first."""
    return tuple(dict.fromkeys((name, _NEW_PACKAGES.sub("", name))))
