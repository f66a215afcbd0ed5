"""The timeline: every epoch of a query, measured, on one axis."""
