"""`sage serve`: a local web server over the same runs and cohorts as the command line."""
