"""The prover, verifier and judge, and the debate between them."""
