"""The store overview: every query of a store, its freshness and its size."""
