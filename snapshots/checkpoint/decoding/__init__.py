"""A reader of the changelog files of Spark's state stores, into Arrow, without Spark and without Java."""
