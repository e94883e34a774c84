"""Rules about gradients: GRD."""
