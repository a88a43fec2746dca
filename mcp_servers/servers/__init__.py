"""MCP servers over the registry: stdio and streamable HTTP."""
