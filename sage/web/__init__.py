"""`sage serve`: a local server and its pages over the same runs and cohorts as the shell."""
