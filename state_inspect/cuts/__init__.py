"""Snapshots of several queries that belong together: by what they read of their sources, or by time."""
