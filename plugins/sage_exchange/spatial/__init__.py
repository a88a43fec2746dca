"""Export of a slide's results as a SpatialData store."""
