"""Training and scoring of the nuclei network."""
