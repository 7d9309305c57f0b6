"""Requests that wait: consumers for messages, producers and sinks for capacity, claims and redrives for a cycle."""
