"""Where alerts go: one channel a file, a line each in `catalogue`."""
