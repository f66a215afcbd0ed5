"""Fetch the jars that some tests need, such as Kafka's broker: ``python -m scripts.jars [SET…]`` prints their paths.

Maven fetches each set once into a folder of the user's cache. With ``STREAMSTATE_NO_INSTALL=1`` nothing is fetched: a
missing set is an error.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape
from zlib import crc32


class NotInstalledError(Exception):
    """Something is missing, and cannot or may not be installed."""


@dataclass(frozen=True)
class JarSet:
    """Artifacts of Maven, as ``group:name:version``, with or without all that they depend on."""

    artifacts: tuple[str, ...]
    alone: bool = True

    def pom(self) -> str:
        """Return a project that depends on the artifacts, for Maven."""
        return (
            '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
            "<groupId>streamstate</groupId><artifactId>jars</artifactId><version>1</version>"
            f"<dependencies>{''.join(map(self._dependency, self.artifacts))}</dependencies></project>"
        )

    def _dependency(self, artifact: str) -> str:
        tags = zip(("groupId", "artifactId", "version"), artifact.split(":"), strict=True)
        alone = (
            "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
            if self.alone
            else ""
        )
        return f"<dependency>{''.join(f'<{tag}>{escape(value)}</{tag}>' for tag, value in tags)}{alone}</dependency>"


_AWS = (
    "annotations apache-client arns auth aws-core aws-query-protocol aws-xml-protocol checksums checksums-spi crt-core "
    "endpoints-spi http-auth http-auth-aws http-auth-aws-eventstream http-auth-spi http-client-spi identity-spi "
    "json-utils metrics-spi netty-nio-client profiles protocol-core regions retries retries-spi s3 s3-transfer-manager "
    "sdk-core sts third-party-jackson-core utils utils-lite"
)
"""What Hadoop needs of AWS's libraries: the bundle of all of them has hundreds of megabytes."""

SETS = {
    "kafka-broker": JarSet(("org.apache.kafka:kafka_2.13:4.1.1",), alone=False),
    # 4.2.0 also works with Spark 4.3.
    "kafka": JarSet(
        (
            "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
            "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.2.0",
            "org.apache.kafka:kafka-clients:3.9.2",
            "org.apache.commons:commons-pool2:2.13.1",
        )
    ),
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


def cache() -> Path:
    """Return the folder for what the tests need and fetch."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "streamstate")


def jars(name: str) -> list[Path]:
    """Return the jars of a set, which are fetched once.

    Raises:
        NotInstalledError: a set is missing, and there is no Maven, or nothing may be installed.
        subprocess.CalledProcessError: Maven could not fetch the jars.
    """
    wanted = SETS[name]
    folder = cache() / "jars" / f"{name}-{crc32(wanted.pom().encode()):08x}"  # one folder for each choice of versions
    if not folder.is_dir():
        if os.environ.get("STREAMSTATE_NO_INSTALL") or not shutil.which("mvn"):
            raise NotInstalledError(f"{', '.join(wanted.artifacts)}: missing. Install Maven, which fetches them.")
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as parts:
            _fetch(wanted, Path(parts))
            try:
                Path(parts, "jars").rename(folder)
            except OSError:
                if not folder.is_dir():  # otherwise another process was quicker
                    raise
    return sorted(folder.glob("*.jar"))


def _fetch(wanted: JarSet, folder: Path) -> None:
    """Copy the jars from Maven's own folder, which is not always below HOME."""
    pom = folder / "pom.xml"
    pom.write_text(wanted.pom(), encoding="utf-8")
    copy = ("mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={folder / 'jars'}")
    subprocess.run(copy, check=True)


def main() -> None:
    """Fetch the sets and print the paths of their jars, separated by commas, as Spark wants them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sets", nargs="*", metavar="SET", default=[*SETS], help=f"{', '.join(SETS)}; all by default")
    for name in parser.parse_args().sets:
        print(",".join(map(str, jars(name))))


if __name__ == "__main__":
    main()
