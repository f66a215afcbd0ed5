"""Queries over topics of a real broker."""
