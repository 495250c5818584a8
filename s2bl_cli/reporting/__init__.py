"""Make tables, figures and claims of scores."""
