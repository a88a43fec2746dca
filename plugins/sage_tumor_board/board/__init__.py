"""A molecular tumor board as an environment: questions about a patient over a growing timeline.

Source: "MTBBench: A Multimodal Sequential Clinical Decision-Making Benchmark in Oncology", 2.3 and
appendix D.1.
"""
