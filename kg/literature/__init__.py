"""Clients for literature services behind a common protocol."""
