"""Models of E[r | x, a] for every action, fitted on the logged actions; as a single model or cross-fitted in folds."""
