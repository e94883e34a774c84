"""Sonde inside other people's programs: scripts that know nothing of it, and trainers."""
