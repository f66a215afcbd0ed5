"""A reader of the changelogs and snapshots of Spark's state stores, into Arrow, without Spark and without Java."""
