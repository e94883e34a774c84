"""What rules share of a run so far: its loss, evaluations, layers and disturbances, each kept once."""
