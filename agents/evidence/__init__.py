"""Evidence for feasibility from outside registries and installed packages."""
