"""The error ledger: what was registered, tested and screened on which patients."""
