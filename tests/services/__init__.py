"""Queries beside real services: Kafka, Delta for Spark, an S3-compatible server."""
