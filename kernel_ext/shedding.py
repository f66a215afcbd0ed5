"""Levels of :func:`streamstate.shed`, and estimates from the rows that it kept.

Each function is loaded on first use.
"""
# ruff: noqa: PLC0414 (a name imported as itself is public for type checkers)

from __future__ import annotations

from typing import TYPE_CHECKING

from streamstate.lazy_names import lazy_names

if TYPE_CHECKING:
    from streamstate.variables.shedding.bound_level import declare_level as declare_level
    from streamstate.variables.shedding.estimates import weighted_count as weighted_count
    from streamstate.variables.shedding.estimates import weighted_mean as weighted_mean
    from streamstate.variables.shedding.estimates import weighted_sum as weighted_sum
    from streamstate.variables.shedding.level import level_variable as level_variable
    from streamstate.variables.shedding.level_for import level_for as level_for

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
