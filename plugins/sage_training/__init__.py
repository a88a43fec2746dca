"""Training networks for nuclei and tissue patches on your own labels, with scores and cards."""
