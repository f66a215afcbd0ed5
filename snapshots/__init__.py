"""Checkpoints, the capture of their epochs, and the tables on disk.

Nothing here depends on notebooks, and only capturing needs Spark. ``epoch_commit`` captures an epoch: it writes the
changelogs (``table_capture``), then commits the manifest (``manifest``). All commits go through ``delta/commits``.
"""
