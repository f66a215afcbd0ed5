"""Damage in a checkpoint: files that are missing, torn or altered, and whether Spark can start from it again."""
