"""Rules about time, memory and the watching itself: SYS."""
