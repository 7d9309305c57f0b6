"""Metrics of a server, counted from commits and written for Prometheus."""
