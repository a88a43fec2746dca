"""Command-line groups, a module each, loaded when they are called."""
