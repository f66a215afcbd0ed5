"""Conditions on state over time."""
