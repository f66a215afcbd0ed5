"""The load of a query: epochs in columns, and forecasts."""
