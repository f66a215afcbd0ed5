"""Stored plans of queries: the columns of a result as expressions over the state's columns."""
