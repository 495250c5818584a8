"""The cost that needs no expression. Apart, so that the command line can name it without importing polars."""

MATCH = "match"
