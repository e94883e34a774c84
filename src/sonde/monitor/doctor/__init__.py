"""The doctor of a training: a process beside it that judges every row as it is recorded."""
