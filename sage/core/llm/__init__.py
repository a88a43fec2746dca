"""Access to language models: metered client, agent loop with tools, and trace format."""
