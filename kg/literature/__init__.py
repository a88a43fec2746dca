"""Clients for literature services, which share a common protocol."""
