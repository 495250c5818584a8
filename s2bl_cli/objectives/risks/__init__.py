"""Risk estimators for training, one file each: a function from a batch of known rows to a term. Does not import
torch."""
