"""Writing to the streams of a process that is not ours: the training's stderr and stdout."""
