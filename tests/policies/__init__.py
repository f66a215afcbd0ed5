"""Load policies: what is declared, what follows from it, and what would have."""
