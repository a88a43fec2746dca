"""Command groups for the command line, each in a module that is imported only when called."""
