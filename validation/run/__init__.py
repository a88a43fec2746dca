"""A validation from start to end: prepared inputs, protocol, runner."""
