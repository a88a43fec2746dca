"""Error for a slide without a pixel size, which a person can supply."""

from __future__ import annotations

from sage.core.errors import InputError


class PixelSizeError(InputError):
    """The file does not state its pixel size, which the requested operation needs."""
