"""Tests of the tumor board."""
