"""Changes of code, and what a check, and Spark itself, make of them."""
