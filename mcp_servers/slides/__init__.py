"""Slide access: `Slide` over direct TIFF decoding, OpenSlide and plain images."""

from __future__ import annotations
