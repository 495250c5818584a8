"""Policies as networks: from contexts to logits, alone or stacked for training. One file per model and optimizer."""
