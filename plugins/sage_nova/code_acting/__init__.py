"""NOVA's agent, which answers questions about histology data with programs that call tools.

Source: "NOVA: An Agentic Framework for Automated Histopathology Analysis and Discovery",
3.1.
"""
