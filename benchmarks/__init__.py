"""Benchmarks of SAGE against baselines and peers; not part of the wheel."""
