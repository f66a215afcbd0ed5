"""The temporal index: every version of every key that was read, in an embedded DuckDB."""
