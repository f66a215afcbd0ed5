"""Making checkpoints whose state comes from rows: from a store, from another query's state, or from a table."""
