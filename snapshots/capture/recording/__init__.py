"""Recording the input of sources that do not keep it: a query writes what they deliver, another reads that."""
