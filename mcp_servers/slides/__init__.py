"""Slide access through `Slide`, with direct TIFF decoding, OpenSlide and plain images."""

from __future__ import annotations
