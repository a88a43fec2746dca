"""Controls that accompany a claim: how they run and when they count against the claim."""
