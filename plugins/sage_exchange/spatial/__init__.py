"""Export of results on a slide as a SpatialData store."""
