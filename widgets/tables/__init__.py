"""Small tables for people, as text and as HTML."""
