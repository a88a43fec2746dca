"""Tests of the benchmarks: their arithmetic, and one tiny run each."""
