"""Screens of all genes and features of a cohort, noted in the ledger."""
