"""Measurements written as programs, tools made of reviewed functions, variables by tools."""
