"""Rules about optimisers and their state: OPT."""
