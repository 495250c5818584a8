"""Metrics and estimators for a policy on a log. Uses only numpy: no torch, no files."""
