"""Types for the results: tests, numbers by key, controls and verdict."""
