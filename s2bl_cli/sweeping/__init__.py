"""Sweeps: a grid of experiments as commands of s2bl, run in order of their inputs, on one machine or many."""
