"""Checkpoints, stores and code on an S3-compatible server, with Spark itself."""
