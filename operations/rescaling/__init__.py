"""Rescaling: change the number of partitions of a query's state, advise on it, and roll it back."""
