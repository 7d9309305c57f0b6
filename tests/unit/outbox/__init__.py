"""Tests of the outbox on a real PostgreSQL."""
