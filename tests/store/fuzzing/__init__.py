"""Damages runs and logs in every way that was thought of, and looks whether readers survive it."""
