"""NEXMark: its events, its stateful queries on Structured Streaming, their oracle, and what capture costs them."""
