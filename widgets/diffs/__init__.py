"""The diff view: what differs between two epochs of a state table."""
