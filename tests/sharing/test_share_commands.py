"""``streamstate share`` and ``%state publish``: contracts, tokens and the server from a terminal and a notebook."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from notebook_shell import Shell, bare_shell  # noqa: F401 (a fixture)

import streamstate as ss
from streamstate.command_line import main
from streamstate.errors import UnknownQueryError
from streamstate.sharing import PartialTerms, serve
from streamstate.sharing.contracts import Contracts
from streamstate.state_inspect.store import Store


def run(*arguments: object) -> int:
    """Run a command."""
    return main(["share", *map(str, arguments)])


def test_a_share_from_a_terminal(store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Publish, list, show, rotate, revoke."""
    profile = tmp_path / "partner.share"
    terms = ("--to", "partner", "--columns", "value", "--where", "value > 1", "--freshness", "5m", "--price", 2)
    assert run("add", store.path, "q", *terms, "--profile", profile) == 0
    assert "op0 (value where value > 1)" in capsys.readouterr().out
    found = json.loads(profile.read_text())
    assert found["endpoint"] == "http://127.0.0.1:8720/delta-sharing"
    assert profile.stat().st_mode & 0o777 == 0o600
    assert run("add", store.path, "q", *terms, "--profile", profile) == 1
    assert "exists. Name another file" in capsys.readouterr().err
    assert run("ls", store.path, "--json") == 0
    [listed] = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (listed["contract"], listed["to"], listed["state"], listed["version"]) == ("q", "partner", "active", 2)
    assert run("show", store.path, "q") == 0
    assert "Granted so far: 0 rows of 0 epochs." in capsys.readouterr().out
    assert run("rotate", store.path, "partner", "--profile", tmp_path / "new.share", "--overlap", "1h") == 0
    assert json.loads((tmp_path / "new.share").read_text())["bearerToken"] != found["bearerToken"]
    assert run("revoke", store.path, "--to", "partner", "--tokens") == 0
    assert run("revoke", store.path, "q") == 0
    assert "revoked" in capsys.readouterr().out
    assert store.contracts()[0].state == "revoked"


def test_suggestions_in_a_terminal(store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Who read what and when, and what is suggested; the number of a suggestion says which one is accepted."""
    contract = store["q"].publish("partner", columns=["value"], price=2e6)
    with serve(store, port=0) as server:
        theirs = ss.open_share(contract.profile(server.url), cache=tmp_path / "copy")
        theirs.suggest(columns=["key", "value"], keep="30d")
        assert run("show", store.path, "q") == 0
        shown = capsys.readouterr().out
        assert "op0: + key, value" in shown
        assert "each epoch for 30d" in shown
        line = shown.rpartition("Accept it: streamstate share ")[2].split()
        theirs.suggest(columns=["key", "value"])
    assert run(*line) == 1
    assert "The newest suggestion of partner is number 2." in capsys.readouterr().err
    assert run("refuse", store.path, "q") == 0
    assert run("accept", store.path, "q") == 1
    assert "suggests no other terms" in capsys.readouterr().err
    Contracts(store.layout).suggest("q", "partner", PartialTerms(columns={"op0": ("key",)}))
    assert run("accept", store.path, "q", "--suggestion", 4) == 0
    assert "version 2: op0 (key)" in capsys.readouterr().out
    assert run("ls", store.path, "--json") == 0
    listed = json.loads(capsys.readouterr().out)
    assert (listed["suggestion"], listed["suggested"]) == ("accepted", {"columns": {"op0": ["key"]}})
    assert (listed["rows"], listed["epochs"], listed["newest"], listed["cost"]) == (9, 4, 4, 18)
    assert listed["read_at"] > str(contract.at)[:10]
    assert run("show", store.path, "q", "--json") == 0
    [table] = [json.loads(text) for text in capsys.readouterr().out.splitlines()]
    assert (table["table"], table["columns"], table["rows"], table["newest"]) == ("op0", ["key"], 9, 4)
    assert run("ls", store.path) == 0
    assert "accepted" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("revoke", "STORE"), "Name a contract"),
        (("revoke", "STORE", "p"), "There is no contract p"),
        (("add", "STORE", "q", "--to", "a b"), "Invalid to"),
        (("rotate", "STORE", "partner", "--profile", "x", "--endpoint", "ftp://x"), "http://"),
        (("serve", "STORE", "--tls-cert", "x"), "belong together"),
    ],
)
def test_errors(store: Store, arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """In a line that says what would be right."""
    assert run(*(store.path if word == "STORE" else word for word in arguments)) == 1
    assert said in capsys.readouterr().err


def test_the_server_as_a_command(store: Store, tmp_path: Path) -> None:
    """It serves until it is terminated, and then has written what was metered."""
    contract = store["q"].publish("partner")
    command = [sys.executable, "-m", "streamstate", "share", "serve", store.path, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = next(line.strip() for line in process.stdout if "http" in line)
        theirs = ss.open_share(contract.profile(url), cache=tmp_path / "copy")
        assert theirs["q"].captured() == store["q"].captured()
        process.send_signal(signal.SIGTERM)
        assert "Stopped." in process.stdout.read()
    assert process.returncode == 0
    assert store.usage()["rows"].sum() == 9


def test_the_magic(bare_shell: Shell, store: Store) -> None:
    """The same terms in a notebook."""
    bare_shell.run(f"%config StreamState.store = {store.path!r}")
    contract = bare_shell.run("%state q.op0 publish --to partner --columns value --since 3")
    assert (contract.terms.tables[0].columns, contract.terms.since) == (("value",), 3)
    assert store.contracts() == [contract]
    assert bare_shell.run("%state contracts") == [contract]
    assert bare_shell.run("listed = %state q contracts") is None
    assert "op0 (value)" in bare_shell.names["listed"]._repr_html_()
    bare_shell.fails("%state p contracts", UnknownQueryError)
