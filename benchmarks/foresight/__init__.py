"""Which pairs of a dated graph will be linked next: features of the past, a model of time."""
