"""MCP servers for the registry, over stdio and streamable HTTP."""
