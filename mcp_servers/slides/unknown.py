"""The one thing about a slide that a person can add: how large its pixels are."""

from __future__ import annotations

from sage.core.errors import InputError


class PixelSizeError(InputError):
    """The file does not state its pixel size, and what was asked for needs it."""
