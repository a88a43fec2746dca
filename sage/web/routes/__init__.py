"""Routes of the pages, a module per page."""
