"""A fork's own versions of a variable: they build on what its epochs were bound to."""

from __future__ import annotations

from pathlib import Path

import streamstate as ss
from streamstate.snapshots.checkpoint.bindings import Version
from streamstate.variables.contributions import Staged, begin_run, stage_group
from streamstate.variables.epoch_binding import take_in_branch
from streamstate.variables.in_tasks import log_of
from streamstate.variables.version_bytes import encoded_contribution

FORK = "f0"


def test_a_stepped_epoch_contributes_to_what_it_was_bound_to(tmp_path: Path) -> None:
    """The original's variable was set between two epochs; so the fork's branch has what was set, too."""
    total = ss.shared(tmp_path, "total", "counter")
    total.set(10)
    total.set(500)
    branch = log_of(total.declaration, total.transport, FORK)
    run = begin_run(branch.transport, FORK, 3)

    def contributed(epoch: int, bound: Version) -> int:
        name = Staged(epoch, run, "op", 0, 0, 0).name
        branch.transport.put(stage_group(total.declaration.key, FORK), name, encoded_contribution(7, total.declaration))
        take_in_branch(branch, FORK, epoch, bound)
        value: int = branch.value(branch.head())
        return value

    assert contributed(4, Version(1)) == 17
    assert contributed(5, Version(2)) == 507
    assert contributed(6, Version(branch.head(), FORK)) == 514
    assert (total.get(), total.version) == (500, 2)
