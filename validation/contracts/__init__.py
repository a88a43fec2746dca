"""What will be tested, written and hashed before any outcome is compared."""
