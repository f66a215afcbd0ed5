"""The debugger view: a session that steps through a query's epochs, shown and driven."""
