"""A training on a terminal: what is shown of it, how it is drawn, and who may write where."""
