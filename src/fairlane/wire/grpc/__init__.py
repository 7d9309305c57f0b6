"""The messages and stubs of the gRPC services; made from ``proto/`` by ``tools/make_grpc.py``."""
