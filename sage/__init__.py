"""The SAGE application: command line, settings, state machine, run folders, report."""
