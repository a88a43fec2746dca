"""API routes, with one module per page."""
