"""Policies in training: one network, or many linear policies side by side. Contexts in, log-probabilities out."""
