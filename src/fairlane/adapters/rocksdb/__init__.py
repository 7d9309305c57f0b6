"""A store in RocksDB, on the local disk."""
