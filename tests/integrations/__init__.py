"""Tests of Sonde inside other people's programs."""
