"""Sweeps: a grid of experiments as s2bl commands, run in the order of their inputs, on one machine or many."""
