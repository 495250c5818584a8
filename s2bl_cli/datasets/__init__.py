"""Labelled data in, arrays out: one file a dataset."""
