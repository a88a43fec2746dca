"""Command groups of the command line, one module each, imported only when they are called."""
