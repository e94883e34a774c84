"""A bulletin in words: one form a file, all of them pure."""
