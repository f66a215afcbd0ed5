"""Linear Road: its traffic, the oracle, and the streaming query."""
