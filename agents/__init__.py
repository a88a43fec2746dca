"""One module per agent: what it reads, what it returns, its prompt file, its rule."""
