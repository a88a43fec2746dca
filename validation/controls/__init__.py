"""Controls beside a claim: what they are, how they run, when they speak against it."""
