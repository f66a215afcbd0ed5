"""``%stream promote`` stops a query, lets a fork take its place, and starts it again with the fork's code."""

from __future__ import annotations

import pytest
from conftest import Source, counts, letters
from notebook_shell import Shell, bare_shell, shell, shown_at_once  # noqa: F401 (fixtures)
from oracle import captured_rows, spark_rows
from pyspark.sql import SparkSession

import streamstate as ss
from streamstate.errors import PromotionError, QueryError
from streamstate.launch.running import Running

pytestmark = pytest.mark.slow


@pytest.fixture
def running(shell: Shell, source: Source) -> Running:
    """A running query ``counts`` with two captured epochs, and a fork ``what_if`` at the first, with other state."""
    for epoch in range(2):
        source.add(letters(epoch))
    shell.names["counted"] = counts(source)
    handle = shell.run("%%stream counts --trigger 100ms\ncounted")
    assert isinstance(handle, Running)
    handle.wait(epoch=1, timeout=300)
    shell.names["changed"] = counts(source).where("n > 0")
    shell.run("%stream fork counts --at 0 --as what_if --query changed --edit \"DELETE FROM op0 WHERE k = 'k1'\"")
    return handle


def test_a_fork_takes_over_a_running_query(
    shell: Shell, running: Running, source: Source, spark: SparkSession, shown_at_once: list[str]
) -> None:
    """The query goes on with the fork's state and code, and so does its history."""
    shell.run("%stream step what_if")
    promotion = shell.run("%stream promote what_if --over counts -o promotion")
    assert shell.names["promotion"] is promotion
    assert promotion.epoch == 1
    assert promotion.differences == {"op0": (1, 0)}
    assert shown_at_once[-1].startswith("counts continues after epoch 1 with the state of what_if; it was stopped for ")
    handle = shell.notebook.query("counts")
    assert handle.state == "running"
    assert handle.launch is not None
    assert handle.launch.frame is shell.names["changed"]
    source.add(letters(2))
    assert handle.wait(epoch=3, timeout=300) == 3
    history = ss.open_store(handle.store)["counts"]
    for epoch in range(4):
        checkpoint = promotion.kept if epoch < 2 else handle.checkpoint.path
        assert captured_rows(history.at(epoch).table()) == spark_rows(spark, checkpoint, "op0", epoch)
    handle.stop()
    with pytest.raises(PromotionError, match="has run epoch 2 since the promotion"):
        promotion.undo()


@pytest.mark.exhaustive
def test_a_refused_promotion_restarts_the_query(shell: Shell, running: Running) -> None:
    """The error says which epochs the fork lacks; a query that runs elsewhere is refused before it is stopped."""
    assert "Run epochs 1 to 1 on the fork" in shell.fails("%stream promote what_if --over counts", PromotionError)
    handle = shell.notebook.query("counts")
    assert handle.state == "running"
    handle.stop()
    shell.run("%stream step what_if")
    assert shell.run("%stream promote what_if --over counts").epoch == 1
    assert handle.state == "stopped"
    shell.run(f"%stream attach {handle.checkpoint} --name counts")
    assert "was not started by this notebook" in shell.fails("%stream promote what_if --over counts", QueryError)
