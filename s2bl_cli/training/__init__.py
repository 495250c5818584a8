"""The loop: a log on the device, batches of it, the objective, a policy."""
