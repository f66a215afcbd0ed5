"""Queries over tables of Delta for Spark."""
