"""Benchmarks that anyone can run, such as calibration, extraction, fusion and backtests."""
