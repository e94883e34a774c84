"""What a training is drawn from: an axis a file."""
