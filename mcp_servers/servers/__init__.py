"""MCP servers for the registry: stdio and streamable HTTP."""
