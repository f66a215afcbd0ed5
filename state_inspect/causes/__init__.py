"""Causes of changes: why a key was added, changed or removed."""
