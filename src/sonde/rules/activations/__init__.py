"""Rules about activations: ACT."""
