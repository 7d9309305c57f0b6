"""Queues that are split: spreading a request over partitions, and joining their answers."""
