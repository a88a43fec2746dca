"""Literature services that can be searched, some of them to the last page."""
