"""Fairlane: a durable, fair, multi-tenant queue for Python.

The rooms of this package are its doors: ``fairlane.client`` talks to a server, ``fairlane.worker`` runs handlers, the
command ``fairlane`` serves and administers, ``fairlane.assembly`` opens a durable broker in this process,
``fairlane.scheduler`` is fair picking without a disk, ``fairlane.asgi`` brings it to HTTP services, and
``fairlane.testing`` helps to test programs and adapters built on them. Importing one loads only those below it.
"""

__version__ = "0.1.0"
