"""Error of a slide without a pixel size, which a person can provide."""

from __future__ import annotations

from sage.core.errors import InputError


class PixelSizeError(InputError):
    """The file does not state its pixel size, and what was asked for needs it."""
