"""The query dashboard: a running query, operator by operator, and the spread of its state."""
