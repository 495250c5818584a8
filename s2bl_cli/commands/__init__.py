"""One module per verb: options in, one call, one summary out. Nothing heavy is imported before a verb runs."""
