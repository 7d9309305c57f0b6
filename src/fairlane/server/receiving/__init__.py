"""Requests that are being received: how much memory they take, and for how long."""
