"""Measurements written as programs, tools from reviewed functions, and variables from tools."""
