"""Hiding feedback: which rows keep theirs (`selection`), and the streaming rewrite that hides the rest."""
