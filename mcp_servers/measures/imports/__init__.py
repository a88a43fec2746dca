"""Maps that other programs made, as typed maps in µm."""
