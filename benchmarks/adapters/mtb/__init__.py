"""MTBBench: patients rebuilt from published conversations, asked and scored."""
