"""The panel below a key's changes that explains one of them."""
