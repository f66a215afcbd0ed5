"""The key history view: one key of a state table through all epochs."""
