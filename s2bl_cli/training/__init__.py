"""The training loop: load a log onto the device, draw batches, minimise the objective, return policies."""
