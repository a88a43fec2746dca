"""The two reasoners: a chat model, and rules without one."""
