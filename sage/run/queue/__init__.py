"""The control plane: which runs there are, whose they are, and who works on each."""
