"""Rules about weights: WGT."""
