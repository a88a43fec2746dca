"""A contract's registered tests and controls, run on prepared inputs."""
