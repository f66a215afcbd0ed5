"""A process that runs the query ``q`` with a policy, and is killed at a point of its controller, with its JVM.

Arguments: the folder, the point (empty: it is not killed), which time the point is reached, and the epoch to end at.
"""

from __future__ import annotations

import os
import signal
import sys
from functools import partial
from pathlib import Path

import streamstate as ss
from policies.levelled import RULES, levelled
from policies.made import MadePolicy
from streamstate.launch import load_policy
from streamstate.operations.policies.runtime import Controller


def main() -> None:
    """Run the query."""
    folder, point, times, goal = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    setattr(load_policy, "rules_of", lambda _running: RULES)  # noqa: B010 (another module's name)
    setattr(load_policy, "LEVEL", "_level")  # noqa: B010 (likewise)
    left = [times]

    def reached(at: str) -> None:
        left[0] -= at == point
        if point and left[0] == 0:
            os.killpg(0, signal.SIGKILL)

    setattr(load_policy, "Controller", partial(Controller, reached=reached))  # noqa: B010 (likewise)
    spark = ss.session()
    level = ss.shared(folder / "store", "q_level", "bigint", init=10_000)
    frame = levelled(spark, folder / "input", level, files=1)
    policy, store = MadePolicy(5.0), folder / "store"
    running = ss.start(frame, "q", store, policy=policy, trigger="200ms", partitions=2, shared=(level,))
    running.wait(epoch=goal, timeout=300)
    running.stop()


if __name__ == "__main__":
    main()
