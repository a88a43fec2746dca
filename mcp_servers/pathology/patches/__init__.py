"""Patch encoders and classifiers trained by the user."""
