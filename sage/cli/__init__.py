"""Command-line groups, one module each, loaded when they are called."""
