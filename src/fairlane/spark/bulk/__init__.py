"""Bulk work with Spark: backfill a queue from tables, archive, select dead letters with SQL."""
