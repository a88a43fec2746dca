"""One way to talk to a language model: metered client, turn loop with tools, one trace format."""
