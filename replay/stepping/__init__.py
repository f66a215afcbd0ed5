"""Stepping a fork: running its next epochs one at a time, with the original's input."""
