"""From a topic to a folder of papers: search, screening, full texts, and what became of each."""
