"""Numerical core of the pathology tools: array functions that read and write no files."""

from __future__ import annotations
