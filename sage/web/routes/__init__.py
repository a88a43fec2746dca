"""Routes of the pages, with one module per page."""
