"""From a stored run to something to read: diagnosis, reports, comparisons."""
