"""Stores in RocksDB, on a local disk."""
