"""Load policies of running queries."""
