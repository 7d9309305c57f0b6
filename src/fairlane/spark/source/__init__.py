"""Queues and the journal as sources and sinks of Spark."""
