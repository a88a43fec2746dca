"""The board's agent without a model: what files state, held against what options claim.

Each module knows one kind of file. An option's chance is the product of its claims' chances; where
no file tells, a general prior with its source stands in and is named as one. Where an option stands
in the list is never looked at. Developed on the development half of the patients alone, without a
rule for any single question.
"""
