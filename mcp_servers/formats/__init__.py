"""Formats that other pathology software reads: QuPath GeoJSON, Trident/CLAM HDF5, PNG, CSV."""

from __future__ import annotations
