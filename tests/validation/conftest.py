"""Few draws for all tests of validation."""

from tests.draws import few_draws

__all__ = ["few_draws"]
