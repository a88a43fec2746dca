"""Benchmarks of SAGE: measured beside baselines and peers; not part of the wheel."""
