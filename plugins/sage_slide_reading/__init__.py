"""Slide reading: agents that read slides, recorded sessions, where readers look."""
