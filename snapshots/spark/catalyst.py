"""Spark's own plans from Python: Scala's collections and objects, and trees of nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any


def scala_object(jvm: Any, name: str) -> Any:
    """Return a Scala object, by its full name without the dollar sign."""
    loader, initialize = jvm.java.lang.Thread.currentThread().getContextClassLoader(), True
    return jvm.java.lang.Class.forName(f"{name}$", initialize, loader).getField("MODULE$").get(None)


def each(sequence: Any) -> Iterator[Any]:
    """Return the items of a Scala collection."""
    items = sequence.iterator()
    while items.hasNext():
        yield items.next()


def scala_list(jvm: Any, items: Iterable[Any]) -> Any:
    """Return a Scala list."""
    made = jvm.java.util.ArrayList()
    for item in items:
        made.add(item)
    return jvm.scala.jdk.javaapi.CollectionConverters.asScala(made).toList()


def kind_of(node: Any) -> str:
    """Return the class of a node, without its package."""
    return str(node.getClass().getSimpleName())


def number_of(attribute: Any) -> int:
    """Return the number that tells an attribute from others of the same name."""
    return int(attribute.exprId().id())


def walk(plan: Any) -> Iterator[Any]:
    """Return a plan's nodes, from the top down, left before right."""
    yield plan
    for child in each(plan.children()):
        yield from walk(child)
