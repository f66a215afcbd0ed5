"""The client of Delta Sharing's own project, in an environment of its own, reads what the contract grants."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scripts.jars import cache
from sharing.conftest import STATES
from streamstate.sharing import ShareServer
from streamstate.state_inspect.store import Store

pytestmark = [pytest.mark.exhaustive, pytest.mark.timeout(900)]
_CLIENT = "delta-sharing==1.4.2"
_PROGRAM = """
import json, sys
import delta_sharing

profile, url = sys.argv[1], f"{sys.argv[1]}#q.q.op0"
found = {"tables": [table.name for table in delta_sharing.SharingClient(profile).list_all_tables()]}
found["version"] = delta_sharing.get_table_version(url)
for form in (False, True):
    # In the format delta, this version of the client fails on a table without rows.
    epochs = [at for at in json.loads(sys.argv[2]) if at or not form]
    rows = {at: delta_sharing.load_as_pandas(url, version=at, use_delta_format=form) for at in epochs}
    found[f"rows {form}"] = {at: frame.to_dict("records") for at, frame in rows.items()}
    changes = delta_sharing.load_table_changes_as_pandas(url, starting_version=0, use_delta_format=form)
    found[f"changes {form}"] = changes.drop(columns="_commit_timestamp").to_dict("records")
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def client() -> Path:
    """The Python of an environment that has the client, which pins other versions of pandas and Arrow than ours."""
    folder = cache() / "clients" / _CLIENT.replace("==", "-")
    python = folder / "bin" / "python"
    if not python.exists():
        if os.environ.get("STREAMSTATE_NO_INSTALL"):
            pytest.skip(f"{_CLIENT} is not in {folder}, and STREAMSTATE_NO_INSTALL is set.")
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", _CLIENT], check=True)
    return python


@pytest.mark.parametrize("columns", [["key", "value"], ["value"]])
def test_it_reads_every_epoch_and_change(
    client: Path, store: Store, server: ShareServer, tmp_path: Path, columns: list[str]
) -> None:
    """In both response formats; the changes, applied one after the other, give each epoch."""
    contract = store["q"].publish("partner", columns=columns, where="value > 1")
    contract.profile(server.url, tmp_path / "partner.share")
    epochs = [epoch for epoch, state in enumerate(STATES) if state is not None]
    command = [str(client), "-c", _PROGRAM, str(tmp_path / "partner.share"), json.dumps(epochs)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["tables"], found["version"]) == (["op0"], epochs[-1])
    for form in (False, True):
        rows: list[dict[str, Any]] = []
        for epoch in epochs:
            for change in found[f"changes {form}"]:
                if change["_commit_version"] == epoch:
                    row = {name: change[name] for name in columns}
                    is_new = change["_change_type"] in ("insert", "update_postimage")
                    rows.append(row) if is_new else rows.remove(row)
            expected = [{"key": key, "value": value} for key, value in (STATES[epoch] or {}).items() if value > 1]
            view = sorted(({name: row[name] for name in columns} for row in expected), key=str)
            assert sorted(found[f"rows {form}"].get(str(epoch), []), key=str) == view
            assert sorted(rows, key=str) == view
