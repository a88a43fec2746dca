"""Training: networks of nuclei and tissue patches on your own labels; scores and cards."""
