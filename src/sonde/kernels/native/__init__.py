"""The statistics of many tensors on a CPU in one call of C: `statistics.c`, compiled when Sonde is installed."""
