"""Stores and a board in PostgreSQL, or in an engine that speaks its protocol."""
