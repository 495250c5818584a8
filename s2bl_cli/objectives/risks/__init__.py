"""Risk estimators for training, one file each: a batch of known rows in, a term out. No torch is imported."""
