"""The network interfaces of a server: HTTP, the stream and gRPC."""
