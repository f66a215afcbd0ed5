"""What is written here: the Delta tables of a store."""
