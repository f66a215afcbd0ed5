"""The debugger view: a session that steps through a query's epochs, seen and steered."""
