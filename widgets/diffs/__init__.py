"""The diff view: the differences between two epochs of a state table."""
