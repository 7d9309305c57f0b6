"""Fairlead: a fair, multi-tenant queue for Python.

The rooms of this package are its doors: ``fairlead.scheduler`` for fair picking inside a process, ``fairlead.asgi``
for HTTP services. Importing one loads only those below it.
"""

__version__ = "0.1.0"
