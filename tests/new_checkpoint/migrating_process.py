"""A process that migrates a checkpoint again and again, until it is killed: ``CHECKPOINT INPUT TARGET``."""

from __future__ import annotations

import sys
from pathlib import Path

import streamstate as ss
from streamstate.snapshots.spark.session import session


def main(checkpoint: str, folder: str, target: str) -> None:
    """Make one new checkpoint after the other, and say so before each."""
    spark = session()

    def counted() -> object:
        stream = spark.readStream.schema("k string, v long, t timestamp").parquet(folder)
        return stream.groupBy("k").count()

    for number in range(1_000_000):
        sys.stdout.write(f"{target}-{number}\n")
        sys.stdout.flush()
        ss.Checkpoint(checkpoint).migrate(counted, to=Path(f"{target}-{number}"))  # type: ignore[arg-type]


if __name__ == "__main__":
    main(*sys.argv[1:])
