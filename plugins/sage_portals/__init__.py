"""Portals: cohorts from the public APIs of GDC and cBioPortal."""
