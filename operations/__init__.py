"""Changing how many partitions a query's state has, and going on after a failure."""
