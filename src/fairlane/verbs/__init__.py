"""Every verb, defined once: its request, its answer and all facts about it.

One module holds one topic. A verb is a request class, an answer class and a ``Verb`` with its facts; everything else
derives from these: HTTP routes, OpenAPI, the stream, the gRPC services, rights, retries, spreading over partitions and
the reference documentation. ``fairlane.verbs.table.VERBS`` lists all verbs by name.

To add a verb, define it here, say how the broker answers it in ``fairlane.broker.handlers``, and add a method to the
front end in ``fairlane.verbs.methods_aio``.
"""
