"""A broker that asks for a user and a password: they come from the query's code, and stay there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from services.kafka.broker import LOGIN, PASSWORD, Broker
from services.kafka.counting import Counting

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_access_comes_from_the_code_and_is_stored_nowhere(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """All that asks the broker has the settings of the query's source. A wrong password is named as the problem."""
    broker.create("secured", 1)
    broker.produce("secured", ((0, f"k{n % 5}", "v") for n in range(20)))
    access = {
        "kafka.bootstrap.servers": broker.secured,
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": f'{LOGIN} username="reader" password="{PASSWORD}";',
    }
    query = Counting(spark, broker, "secured", tmp_path, subscribe="secured", **access)
    query.run()
    assert query.history.inputs(0).count() == 20
    assert query.history.why(0, k="k3").count() == 4
    assert query.checkpoint.check(query.build, store=query.store).ok
    assert query.checkpoint.epochs(query.build)["lag"].tolist() == [0]
    wrong = {"kafka.sasl.jaas.config": f'{LOGIN} username="reader" password="other";'}
    report = query.checkpoint.check(query.code(**wrong))
    assert [finding.kind for finding in report.findings if finding.level == "refused"] == ["source_unreachable"]
    assert "Authentication failed" in str(report)
    assert "password=" not in str(report)
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert files
    assert not [file for file in files if PASSWORD.encode() in file.read_bytes()]
