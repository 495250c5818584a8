"""The name of the default cost, in a separate module so that the command line does not import polars."""

MATCH = "match"
