"""The benchmark NEXMark: its events, and the results of its queries."""
