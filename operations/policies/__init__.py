"""Load policies: what must hold for a query, and the controller that keeps it there."""
