"""Literature services that can be searched, and some that can be read to the last page."""
