"""Changing how many partitions a query's state has, letting a fork take over, and going on after a failure."""
