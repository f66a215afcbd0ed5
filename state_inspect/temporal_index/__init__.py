"""The temporal index: every version of every key of the tables that were read, in an embedded DuckDB."""
