"""State from rows: the rows of state tables as the bytes of Spark's state stores, written on Spark's executors."""
