"""Validation contracts: tests fixed and hashed before any outcome is compared."""
