"""Shedding: levels, the filter, its counts, and estimates."""
