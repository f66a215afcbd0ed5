"""Debug sessions: stepping forward and back through the epochs of a query, on forks of it."""
