"""What a clinical reader expects beside a test: planning, adjustment, sensitivity, usefulness."""
