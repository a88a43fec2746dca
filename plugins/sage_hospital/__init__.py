"""Audit log, archives, removal of old outputs and of patients, checks of a server."""
