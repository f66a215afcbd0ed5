"""A fork takes the place of a stopped query: sink and checkpoint change owner after one epoch."""

from streamstate.operations.promotion.promoting import Promotion, promote

__all__ = ["Promotion", "promote"]
