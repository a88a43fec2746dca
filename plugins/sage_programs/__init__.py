"""Measurements written as programs, tools made from reviewed functions, and variables by tools."""
