"""Policies and logs in, scores out."""
