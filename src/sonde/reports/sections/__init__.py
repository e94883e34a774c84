"""The sections of a report, one a file: each takes what is known of a run and gives blocks."""
