"""Rationales of a reader's regions: why they were looked at and what is there, as drafts."""
