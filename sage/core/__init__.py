"""The ground floor: what every package may import, and which imports none of ours."""
