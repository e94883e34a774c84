"""Rules about updates of the weights: UPD."""
