"""The vocabulary that every other package speaks."""
