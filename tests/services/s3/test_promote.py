"""A fork takes the place of a query whose checkpoint is in a bucket, where no folder is renamed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from capturing.buckets import Bucket
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

import streamstate as ss
from services.s3.orders import Orders
from streamstate.errors import CaptureError
from streamstate.operations.promotion import promoting
from streamstate.snapshots.checkpoint.hadoop_files import HadoopFiles


class Killed(BaseException):
    """The process is gone."""


@pytest.fixture(scope="module")
def orders(spark: SparkSession, bucket: Bucket) -> Orders:
    """Two epochs of a query, and a fork that ignored a key in the second."""
    made = Orders(spark, bucket, "promoted")
    made.add()
    made.add()
    made.run()
    fork = made.checkpoint().fork(made.uri("fork"), at=0)
    fork.step(lambda: made.build(where="k <> 'k2'"))
    assert made.state("fork") != made.state()
    return made


@pytest.mark.slow
def test_it_can_be_undone(orders: Orders) -> None:
    """The fork's state is in place, without a download, then the old one again; nothing else is left."""
    before, fork = orders.state(), orders.state("fork")
    promotion = orders.checkpoint("fork").promote(over=orders.checkpoint())
    assert promotion.differences == {"op0": (1, 1)}
    assert (orders.state(), orders.state("checkpoint.before-promotion-1")) == (fork, before)
    promotion.undo()
    assert orders.state() == before
    assert set(HadoopFiles(orders.spark).names(orders.uri(""))) == {"checkpoint", "fork", "input"}


def test_a_killed_promotion_is_completed_by_the_next_start(orders: Orders, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until then neither Spark nor a capture takes what is there for a checkpoint."""
    before, fork = orders.state(), orders.state("fork")
    copy = HadoopFiles.copy

    def die(files: HadoopFiles, pairs: Iterable[tuple[str, str]]) -> Any:
        """Copy only half of the files into the query's checkpoint."""
        listed = list(pairs)
        if not listed[0][1].startswith(f"{orders.uri('checkpoint')}/"):
            return copy(files, listed)
        copy(files, listed[::2])
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(HadoopFiles, "copy", die)
        patched.setattr(promoting, "recover_promotion", lambda *_: None)
        with pytest.raises(Killed):
            orders.checkpoint("fork").promote(over=orders.checkpoint())
    with pytest.raises(Py4JJavaError, match="streamstate_is_replacing_this_checkpoint"):
        orders.run()
    with pytest.raises(CaptureError, match="are being replaced"):
        orders.checkpoint().capture(orders.store, "orders")
    orders.add()
    options, where = orders.bucket.options, orders.uri("checkpoint")
    running = ss.start(
        orders.build(), "orders", orders.store, checkpoint=where, trigger="available-now", storage_options=options
    )
    running.wait(timeout=300)
    running.stop()
    third = {key: (total, count) for key, total, count in orders.batch(slice(2, 3))}
    expected = [(key, total + third[key][0], count + third[key][1]) for key, total, count in fork]
    assert orders.state() == expected
    assert orders.state("checkpoint.before-promotion-1") == before
