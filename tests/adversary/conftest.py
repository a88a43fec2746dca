"""Few draws, as in the tests of the validation."""

from tests.draws import few_draws

__all__ = ["few_draws"]
