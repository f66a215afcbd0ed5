"""Fetch the jars that some tests need, such as Kafka's broker: ``python -m scripts.jars [SET…]`` prints their paths.

Maven fetches each set once into a folder of the user's cache. With ``STREAMSTATE_NO_INSTALL=1`` nothing is fetched: a
missing set is an error.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from streamstate.errors import MissingDependencyError as NotInstalledError
from streamstate.tutorials.broker import BROKER, CONNECTOR
from streamstate.tutorials.maven import JarSet, cache, fetched

__all__ = ["SETS", "JarSet", "NotInstalledError", "cache", "jars"]

_AWS = (
    "annotations apache-client arns auth aws-core aws-query-protocol aws-xml-protocol checksums checksums-spi crt-core "
    "endpoints-spi http-auth http-auth-aws http-auth-aws-eventstream http-auth-spi http-client-spi identity-spi "
    "json-utils metrics-spi netty-nio-client profiles protocol-core regions retries retries-spi s3 s3-transfer-manager "
    "sdk-core sts third-party-jackson-core utils utils-lite"
)
"""The modules of AWS's SDK that Hadoop needs; the bundle of all modules takes hundreds of megabytes."""

SETS = {
    "kafka-broker": BROKER,
    "kafka": CONNECTOR,
    "delta": JarSet(("io.delta:delta-spark_4.1_2.13:4.2.0", "io.delta:delta-storage:4.2.0")),
    "s3": JarSet(
        (
            "org.apache.hadoop:hadoop-aws:3.5.0",
            "software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:1.3.0",
            *(f"software.amazon.awssdk:{name}:2.35.4" for name in _AWS.split()),
            "software.amazon.eventstream:eventstream:1.0.1",
            "org.reactivestreams:reactive-streams:1.0.4",
        )
    ),
}
"""The jars for Spark that fit this environment, or, for Delta, Spark 4.1; and those of Kafka's broker."""


def jars(name: str) -> list[Path]:
    """Return the jars of a set, which are fetched once.

    Raises:
        NotInstalledError: a set is missing, and there is no Maven, or nothing may be installed.
        subprocess.CalledProcessError: Maven could not fetch the jars.
    """
    return fetched(name, SETS[name])


def main() -> None:
    """Fetch the sets and print the paths of their jars, separated by commas, as Spark wants them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sets", nargs="*", metavar="SET", default=[*SETS], help=f"{', '.join(SETS)}; all by default")
    for name in parser.parse_args().sets:
        print(",".join(map(str, jars(name))))


if __name__ == "__main__":
    main()
