"""Clients for literature services, one file each behind one protocol."""
