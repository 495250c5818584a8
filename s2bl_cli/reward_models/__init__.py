"""Models of E[r | x, a] for every action, fitted on the logged ones; alone or cross-fitted in folds."""
