"""Hiding feedback: choosing the rows that keep it (`selection`), and rewriting the log as a stream (`rewrite`)."""
