"""Routes of the pages, one module per page."""
