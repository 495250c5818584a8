"""Turn labelled data into logged decisions: fit a logging policy, apply τ, draw actions, write the log."""
