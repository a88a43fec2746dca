"""Inputs that people bring: files of neighboring tools and of their public bug reports.

Each table's rows name the report or the program that the input is rebuilt from, and the right
reading.
"""
