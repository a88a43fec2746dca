"""Few draws for benchmarks at the small scale of tests."""

from tests.draws import few_draws

__all__ = ["few_draws"]
