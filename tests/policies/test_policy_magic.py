"""``%stream policy``, ``%stream list`` and ``%state … why-policy``: the lines, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from notebook_shell import Shell, bare_shell, shell  # noqa: F401 (fixtures)

from policies.made import MadePolicy
from streamstate.errors import InvalidArgumentError, QueryError
from streamstate.operations.policies import policy

if TYPE_CHECKING:
    from streamstate.launch.running import Running

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Changeable(MadePolicy):
    """A policy that a line can change."""

    def changed(self, **changes: Any) -> Changeable:
        """Return it with another latency."""
        return replace(self, latency=float(changes["latency"].removesuffix("s")))


def test_a_line_declares_shows_changes_and_ends_a_policy(
    shell: Shell,
    started: Callable[..., Running],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Without options, the line shows it; `--off` ends it, also twice."""
    monkeypatch.setattr(policy, "Policy", lambda latency: MadePolicy(float(latency[:-1])))
    running = started()
    running.wait(epoch=0, timeout=300)
    shell.notebook.running["q"] = running
    with pytest.raises(InvalidArgumentError, match="needs a latency: %stream policy q --latency 5s"):
        shell.run("%stream policy q --may-drop 0.2")
    table = shell.run("%stream policy q --latency 5s").to_pandas()
    assert table["policy"].tolist() == ["MadePolicy(latency=5.0, extra='')"]
    assert table["state"].tolist() == ["policy holds"]
    assert "policy holds" in shell.run("%stream list").to_pandas()["policy"].tolist()
    with pytest.raises(InvalidArgumentError, match="--off ends the policy"):
        shell.run("%stream policy q --off --latency 5s")
    with pytest.raises(InvalidArgumentError, match=r"invalid partitions '4-16': expected 4\.\.16"):
        shell.run("%stream policy q --partitions 4-16")
    with pytest.raises(QueryError, match="is below the trigger"):
        running.policy = MadePolicy(0.1)
    for _ in range(2):
        assert shell.run("%stream policy q --off").to_pandas()["policy"].tolist() == ["no policy"]
    assert running.policy is None
    running.wait(timeout=300)
    assert "ran without a policy" in str(shell.run(f"%state q why-policy 0 --store {tmp_path / 'store'}"))
