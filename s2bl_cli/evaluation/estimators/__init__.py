"""Estimators of a policy's value from the log, one file each: rows in, what is to be averaged out."""
