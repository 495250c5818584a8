"""Computes scores of policies on logs."""
