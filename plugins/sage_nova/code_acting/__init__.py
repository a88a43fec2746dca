"""NOVA's agent: answers a question about histology data by writing programs that call tools.

Source: "NOVA: An Agentic Framework for Automated Histopathology Analysis and Discovery", 3.1.
"""
