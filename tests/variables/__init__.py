"""Shared variables: versions, contributions, who can use them, and what is refused."""
