"""Benchmarks that anyone can run: calibration, extraction, fusion, backtests."""
