"""The name of the default cost, in a module of its own so that the command line does not import polars."""

MATCH = "match"
