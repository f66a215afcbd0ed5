"""The Delta tables of a store."""
