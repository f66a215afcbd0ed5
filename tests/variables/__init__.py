"""Shared variables: versions, contributions, kills, who can use them, and what is refused.

Tests of versions and contributions run over both transports, files and a real Redis server.
"""
