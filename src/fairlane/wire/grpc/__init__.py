"""The messages and stubs of the gRPC services, made from ``proto/fairlane/v1`` when they are imported.

The ``.proto`` files are the interface for other languages, and they keep the numbers of fields stable.
``tools/make_proto.py`` brings them up to date with the table of verbs.
"""
