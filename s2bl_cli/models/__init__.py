"""Networks: from a batch of contexts to a batch of logits. One file a model."""
