"""Keeping a query running and changing it: check, rescale, promote, migrate, restore, supervise, and drill failures."""
