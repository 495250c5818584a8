"""What a policy is trained for: a risk on the rows with feedback plus λ times a feedback-free regulariser."""
