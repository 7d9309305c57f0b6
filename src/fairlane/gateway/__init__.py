"""The gateway: the one entrance behind all network interfaces of a server."""
