"""Users of Spark Connect, beside classic ones: what runs in the worker process, and how that lives."""
