"""The query dashboard: how a query runs, operator by operator, and how its state is spread."""
