"""A simulation of several nodes over shared stores and a board."""
