"""Adapters: one subpackage per technology, each behind a port. They do not know each other."""
