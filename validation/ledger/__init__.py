"""The error ledger: a record of contracts, tests and screens on the same patients."""
