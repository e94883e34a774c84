"""Tasks: one kind a file, each made on the spot, with a structure that can be learnt to a known goal."""
