"""Where analysis code runs: Docker first."""
