"""One file a verb: options in, one call, one summary out. Nothing heavy is imported before a command runs."""
