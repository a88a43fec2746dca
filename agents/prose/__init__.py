"""Prose follows the facts: what a model's sentence may state, and what replaces it if it may not.

`facts` holds what was computed, in types; `claims` the table of what a sentence can claim and
which fact bears it out; `reading` cuts text into sentences and clauses; `identifiers` finds
citations that were not given; `check` puts them together. All of it is pure.
"""
