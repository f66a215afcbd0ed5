"""Retention: dropping older epochs, and merging the files of those that are kept."""
