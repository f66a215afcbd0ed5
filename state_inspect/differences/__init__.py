"""Differences between epochs, histories of keys, and causes of changes."""
