"""Supervision of queries: restart one that fails, according to a policy."""
