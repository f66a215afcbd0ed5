"""The state browser: one query's state through its epochs."""
