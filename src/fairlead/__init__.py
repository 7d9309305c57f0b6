"""Fairlead: a durable, fair, multi-tenant queue for Python.

The rooms of this package are its doors: ``fairlead.client`` talks to a server, ``fairlead.worker`` runs handlers, the
command ``fairlead`` serves and administers, ``fairlead.assembly`` opens a durable broker in this process,
``fairlead.scheduler`` is fair picking without a disk, ``fairlead.asgi`` brings it to HTTP services, and
``fairlead.testing`` helps to test programs and adapters built on them. Importing one loads only those below it.
"""

__version__ = "0.1.0"
