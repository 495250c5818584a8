"""From labelled data to logged decisions: train a logging policy, apply τ, draw actions, write the log."""
