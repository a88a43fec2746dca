"""The sandbox image: its Dockerfile, its requirements, and `build`."""
