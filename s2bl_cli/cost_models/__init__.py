"""Models of E[c | x, a] for every action, fitted on the logged ones; alone or cross-fitted in folds."""
