"""What a query's plan says of its state: the columns of the query's result as expressions over the state's columns."""
