"""The Spark that reads checkpoints: its session, the Java it runs on, and interrupted calls into it."""
