"""Metrics and estimators of a policy on a log. Uses only numpy: no torch, no files."""
