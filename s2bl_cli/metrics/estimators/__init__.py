"""Estimators of a policy's expected reward, one file each."""
