"""Screens of all genes and features of a cohort, recorded in the ledger."""
