"""The load of queries: collected, kept, shown and forecast."""
