"""A bucket in an S3-compatible server, and Spark's settings to access it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from capturing.buckets import Bucket, served_bucket

MASTER = "STREAMSTATE_MASTER"
"""The environment variable with the URL of a cluster; without it, Spark runs in the tests' own process."""


@pytest.fixture(scope="session")
def bucket() -> Iterator[Bucket]:
    """An empty bucket in a new server."""
    with served_bucket() as made:
        yield made


@pytest.fixture(scope="session")
def service_settings(bucket: Bucket) -> dict[str, str]:
    """Hadoop's settings for the server, one partition, and the cluster's address if there is one."""
    master = os.environ.get(MASTER)
    on_cluster = {"spark.master": master, "spark.executor.memory": "512m"} if master else {}
    return bucket.hadoop_settings() | {"spark.sql.shuffle.partitions": "1"} | on_cluster
