"""Rules about mistakes of the training loop and the wiring of the model: LOP."""
