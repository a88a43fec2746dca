"""Registered tests and controls of a contract, run on prepared inputs."""
