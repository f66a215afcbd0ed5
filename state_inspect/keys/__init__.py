"""The keys of a state table or a result: as a person writes them, as text to copy, and the rows that they have."""
