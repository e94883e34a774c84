"""Watching a training: hooks on the training thread, everything else in the background."""
