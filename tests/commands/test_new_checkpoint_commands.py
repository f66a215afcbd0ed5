"""``streamstate migrate`` and ``streamstate restore`` make checkpoints from a terminal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streamstate.command_line import main
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles

JOB = """
from pyspark.sql import SparkSession, functions as F

def build():
    letters = SparkSession.builder.getOrCreate().readStream.schema("k string, v long").parquet({folder!r})
    return letters.groupBy("k").agg(F.count("*"), F.avg("v"), F.max("v"){more})
"""


@pytest.mark.slow
def test_the_proposed_mapping_is_edited_and_passed_on(
    counted: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], spark: SparkSession
) -> None:
    """It is printed as the JSON that ``--mapping`` reads; what is no mapping is refused."""
    checkpoint, store = counted
    for name, more in (("same", ""), ("total", ', F.sum("v")')):
        text = JOB.format(folder=str(store.parent / "input"), more=more)
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    mapping, new = tmp_path / "mapping.json", tmp_path / "new"
    assert main(["migrate", str(checkpoint), f"{tmp_path}/same.py:build"]) == 0
    sql = json.loads(capsys.readouterr().out)["op0"]
    assert sql == "SELECT k, count, sum, count_2, max FROM op0"
    migrate = ["migrate", str(checkpoint), f"{tmp_path}/total.py:build", "--to", str(new), "--mapping", str(mapping)]
    mapping.write_text('{"op0": 1}', encoding="utf-8")
    assert main(migrate) == 1
    mapping.write_text(json.dumps({"op0": sql.replace("max", "max, CAST(sum AS bigint) AS sum_2")}), encoding="utf-8")
    assert main(migrate) == 0
    assert capsys.readouterr().out.startswith(f"{new}: epoch 4 (op0: 12 rows)")
    assert main(["restore", str(store), "counts", "--at", "2", "--to", str(tmp_path / "again")]) == 0
    assert CheckpointFiles(str(tmp_path / "again")).committed() == [2]
    files = str(store.parent / "input")
    again = ["restore", str(store), "counts", "--to", str(tmp_path / "by_code"), "--code", f"{tmp_path}/same.py:build"]
    assert main([*again, "--files", files]) == 0
    assert CheckpointFiles(str(tmp_path / "by_code")).committed() == [4]
