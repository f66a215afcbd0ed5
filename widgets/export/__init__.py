"""A view as one file that needs no kernel."""
