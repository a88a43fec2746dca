"""What the pages ask for, one module per page."""
