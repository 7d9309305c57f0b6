"""Stores and a board in PostgreSQL."""
