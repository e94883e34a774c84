"""Rules about several processes that train together: DST."""
