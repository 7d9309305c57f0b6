"""Tests of the command ``fairlane``."""
