"""Rules about what the model is given: DAT."""
