"""Files that Spark writes: a query's checkpoint, its logs, and the files of its state."""
