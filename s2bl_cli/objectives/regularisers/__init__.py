"""Feedback-free regularisers, one file each: a batch of rows in, a scalar out. None of them sees a cost."""
