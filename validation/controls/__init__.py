"""Controls that accompany a claim: how they run and when they speak against the claim."""
