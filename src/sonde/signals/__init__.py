"""Streaming statistics of series: pure, vectorised over tags, one a file."""
