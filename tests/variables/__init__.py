"""Tests of shared variables: their versions and contributions, and queries that are killed while they use them.

Those of versions and contributions run over both transports, files and a real Redis server.
"""
