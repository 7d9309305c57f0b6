"""The doors of the broker: HTTP, the stream, keys and health. ``fairlane.server.run`` serves them."""
