"""The scientist: examines graph, literature and cohort, and drafts hypotheses (SAGE, 3.2.3)."""
