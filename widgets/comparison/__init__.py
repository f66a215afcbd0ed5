"""The comparison view: two timelines of a query side by side."""
