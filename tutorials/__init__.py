"""Tutorial notebooks, and the real data and queries that they and the demo use."""
