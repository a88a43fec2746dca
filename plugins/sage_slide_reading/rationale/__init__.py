"""Drafts that state why a reader looked at each region and what is there."""
