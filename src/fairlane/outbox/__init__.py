"""The outbox: enqueue messages in a transaction of your own PostgreSQL database.

``enqueue`` and ``enqueue_async`` write a message over your connection; a ``Relay``, or the command ``fairlane outbox
relay``, moves committed messages to the broker.
"""

from fairlane.outbox.writing import enqueue, enqueue_async

__all__ = ["enqueue", "enqueue_async"]
