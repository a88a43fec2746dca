"""Measurements written as code: a contract, a function over typed maps, the sandbox, a review."""
