"""Complete validation runs: prepared inputs, protocol and runner."""
