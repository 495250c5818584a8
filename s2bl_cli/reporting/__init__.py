"""Scores in, tables out."""
