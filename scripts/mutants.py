"""Count how often random runs find the mistake of each mutant: ``python -m scripts.mutants`` writes the table's data.

The page on simulations shows them, and the tests compare them with runs of their own.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from scripts.typecheck import ROOT
from streamstate.tutorials.simulation.dataflow import Dataflow
from streamstate.tutorials.simulation.key_group_mutants import KEY_GROUP_MUTANTS
from streamstate.tutorials.simulation.key_groups import KeyGroups
from streamstate.tutorials.simulation.log_structured import LogStructured
from streamstate.tutorials.simulation.mutants import MUTANTS, catch
from streamstate.tutorials.simulation.store_mutants import STORE_MUTANTS

RECORDED = ROOT / "docs" / "explanation" / "mutants.json"
SEEDS = range(300)
COUNTED: tuple[type[Dataflow] | type[KeyGroups] | type[LogStructured], ...] = (
    *MUTANTS,
    *KEY_GROUP_MUTANTS,
    *STORE_MUTANTS,
)
"""The mutants whose protocols make a random scenario for each seed."""


def recorded() -> list[dict[str, Any]]:
    """Return the counts that the documentation shows."""
    return list(json.loads(RECORDED.read_text(encoding="utf-8")))


if __name__ == "__main__":
    counts = [asdict(catch(mutant, SEEDS)) for mutant in COUNTED]
    RECORDED.write_text(json.dumps(counts, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
