"""Ports: what the broker and the cluster need from outside. Protocols, and the values that cross them."""
