"""Rules about the loss: LOS."""
