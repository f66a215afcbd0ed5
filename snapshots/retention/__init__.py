"""Dropping and thinning older epochs, and what becomes of the files and readers of those that go."""
