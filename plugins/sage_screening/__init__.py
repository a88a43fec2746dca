"""Screens of all genes and features in a cohort, recorded in the ledger."""
