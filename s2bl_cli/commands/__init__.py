"""One module per command: it declares options, makes one call and prints a summary. Heavy imports are deferred."""
