"""Training objectives: a risk on the rows with feedback plus λ times a feedback-free regulariser."""
