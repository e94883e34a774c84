"""From rows to findings with causes and remedies: pure, the same live and over a stored run."""
