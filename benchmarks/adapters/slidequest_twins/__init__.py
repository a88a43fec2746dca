"""Twins of what SlideQuest's questions need: data with a known truth, and a program that solves it.

SlideQuest's slides are not ours to ship. Each capability that its questions name (notes.csv) has a
task of the same kind on data made here, with a truth that was painted or planted, and a program
written by hand with the tools and modules that the agent has. A capability counts as there when the
programs solve all its twins in the sandbox, to 15% as in the benchmark; a question when all its
capabilities are. This says what the tools suffice for, not how well a model uses them.
"""
