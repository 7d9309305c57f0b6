"""Tests of the command ``fairlead``."""
