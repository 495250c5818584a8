"""Feedback-free regularisers, one file each: a batch of rows in, a term out. None of them sees a cost."""
