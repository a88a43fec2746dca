"""Tests of the plugin."""
