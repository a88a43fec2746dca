"""Screening of many features against an endpoint."""
