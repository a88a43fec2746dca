"""File formats read by other pathology software: QuPath GeoJSON, Trident/CLAM HDF5, PNG, CSV."""

from __future__ import annotations
