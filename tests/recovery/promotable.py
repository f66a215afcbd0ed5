"""A stopped query and a fork of it with other state, ready to be promoted. It is made once; tests change copies."""

from __future__ import annotations

import itertools
import shutil
from dataclasses import dataclass
from pathlib import Path

from operators.queries import aggregated
from operators.running import Query, Run
from pyspark.sql import SparkSession
from stepping import builder

import streamstate as ss

SUMS = aggregated("count(v)", "sum(v)")


@dataclass(frozen=True)
class Pair:
    """A query, with its input and its store, and a fork of it."""

    run: Run
    over: Path
    fork: Path

    @classmethod
    def made(cls, spark: SparkSession, folder: Path) -> Pair:
        """Two epochs of a query, and a fork at the first one that ignores a key in the second."""
        run = Run(spark, folder)
        run.start(SUMS, epochs=range(2))
        fork = ss.Checkpoint(run.checkpoint).fork(folder / "fork", at=0)
        without_key = Query(lambda stream: SUMS.build(stream.where("k IS NULL OR k <> 'k2'")), SUMS.tables)
        ss.Checkpoint(fork).step(builder(run, without_key), spark=spark)
        return cls(run, run.checkpoint, folder / "fork")

    def copied(self, folder: Path) -> Pair:
        """A copy of all, whose logs name the copies of the input files."""
        run = Run(self.run.spark, folder)
        shutil.copytree(self.run.inputs.folder, run.inputs.folder, dirs_exist_ok=True)
        run.inputs._numbers = itertools.count(2)
        over, fork = (Path(shutil.copytree(path, folder / path.name)) for path in (self.over, self.fork))
        for checkpoint in (over, fork):
            for log in checkpoint.glob("sources/0/[0-9]*"):
                log.write_text(log.read_text().replace(f"{self.run.inputs.folder}/", f"{run.inputs.folder}/"))
                log.with_name(f".{log.name}.crc").unlink(missing_ok=True)
        return Pair(run, over, fork)

    @property
    def kept(self) -> Path:
        """The path under which a promotion keeps the old checkpoint."""
        return self.over.with_name(f"{self.over.name}.before-promotion-1")

    @property
    def beside(self) -> set[str]:
        """The names of the folders beside the input and the store that hold anything."""
        return {path.name for path in self.over.parent.iterdir() if any(path.iterdir())} - {"input", "store"}
