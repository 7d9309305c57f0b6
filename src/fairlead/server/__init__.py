"""The doors of the broker: HTTP, the stream, keys and health. ``fairlead.server.run`` serves them."""
