"""Architectures: one a file, each with what it takes and how it is built."""
