"""Parts of a query that may be nondeterministic: in its plan, and in its Python functions."""
