"""Spans of calls and deliveries, exported over OTLP."""
