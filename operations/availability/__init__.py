"""Availability: the lease on a query, and the process that stands by to take it over."""
