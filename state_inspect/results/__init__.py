"""The rows that a query returns, under its own column names, computed from the captured state."""
