"""Runs on disk: open data, written without getting in the way, read from anywhere."""
