"""Metrics with labels, one file each: action probabilities and labels in, one value a row out."""
