"""A query that stalls is noticed, its cause is named, and its policy acts."""
