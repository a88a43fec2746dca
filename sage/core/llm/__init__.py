"""Access to language models: metered client, turn loop with tools, trace format."""
