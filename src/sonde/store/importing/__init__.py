"""Other people's logs: one reader a file, one table of names, and the run that is made of them."""
