"""Measurements written as programs: a contract, the sandbox, the gate, a review by a person."""
