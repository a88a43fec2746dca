"""The arithmetic of the pathology tools: arrays in, arrays out, nothing read or written."""

from __future__ import annotations
