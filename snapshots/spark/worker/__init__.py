"""The worker process: a classic Spark session for what needs a JVM while the user's own session is of Spark Connect."""
