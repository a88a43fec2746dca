"""Slide reading: agents that read slides, recorded sessions, and models of where readers look."""
