"""The nuclei network that ships: what it computes, how it was trained and how it is scored."""
