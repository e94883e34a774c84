"""What can be wrong with a training: one rule a file, its docstring its manual page."""
