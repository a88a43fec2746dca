"""The coding agent: task, data and validation agents under a single controller (SAGE, 3.3.1).

`controller.carry_out` runs a frozen contract in a sandbox, including after a person has
corrected the code.
"""
