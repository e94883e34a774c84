"""What is hooked in a training, and what tags come of it."""
