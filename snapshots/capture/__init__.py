"""From a checkpoint into a store: plans, passes, writers, and recorders of input."""
