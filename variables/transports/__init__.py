"""Transports of versions and contributions while queries run: files or Redis, also for tasks on executors.

A transport is a small store of bytes in named groups. It adds what nothing else decides: that of two who add the same
name, one does. The history that users read is in the store's Delta tables, not here.
"""
