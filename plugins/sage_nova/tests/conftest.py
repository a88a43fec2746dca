"""A finished run for the explorations."""

from __future__ import annotations

from tests.end_to_end.conftest import finished

__all__ = ["finished"]
