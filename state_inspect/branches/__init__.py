"""A query and its forks as branches of one lineage: which epochs they share, and where they diverge."""
