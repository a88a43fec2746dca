"""Many features against one endpoint."""
