"""Queries and their forks as branches of one history: whose epochs are whose, and where two of them part."""
