"""A durable, fair, multi-tenant message queue.

The names in ``__all__`` are what most programs need. Each loads its package on first use, so ``import fairlane`` stays
cheap and a program that only wants the scheduler never loads a database.

``fairlane.tasks`` sends and runs typed tasks, ``fairlane.client`` talks to a server, ``fairlane.worker`` runs handlers,
``fairlane.assembly`` opens a broker in this process, ``fairlane.scheduler`` is the standalone fair scheduler,
``fairlane.asgi`` is a middleware for web services, ``fairlane.testing`` helps to test programs and store adapters, and
the command ``fairlane`` serves and administers.
"""

from importlib import import_module

__version__ = "0.1.0"

# Type checkers read __init__.pyi, which imports the same names eagerly; tests/unit/test_top_level.py compares the two.
_MODULES = {
    "App": "fairlane.tasks",
    "AsyncBroker": "fairlane.assembly",
    "AsyncClient": "fairlane.client",
    "AsyncMessage": "fairlane.client",
    "AsyncProducer": "fairlane.client",
    "AsyncScheduler": "fairlane.scheduler",
    "Broker": "fairlane.assembly",
    "Client": "fairlane.client",
    "DeadLetterFilter": "fairlane.client",
    "Delivery": "fairlane.client",
    "FairQueue": "fairlane.asgi",
    "FairlaneError": "fairlane.errors",
    "HandlerPolicy": "fairlane.worker",
    "KeyPolicy": "fairlane.scheduler",
    "Message": "fairlane.client",
    "NewMessage": "fairlane.client",
    "Producer": "fairlane.client",
    "QueuePolicy": "fairlane.client",
    "Receipt": "fairlane.assembly",
    "Retries": "fairlane.client",
    "ScheduleSpec": "fairlane.client",
    "Scheduler": "fairlane.scheduler",
    "Settings": "fairlane.assembly",
    "TypedTask": "fairlane.tasks",
    "WorkMessage": "fairlane.worker",
    "Worker": "fairlane.worker",
    "open_async_broker": "fairlane.assembly",
    "open_broker": "fairlane.assembly",
}
_SUBMODULES = ("errors",)

__all__ = ["__version__", *_SUBMODULES, *_MODULES]  # noqa: PLE0604 - every item is a string


def __getattr__(name: str) -> object:
    """Load the package that defines a public name, and keep the name here for the next use."""
    if name in _SUBMODULES:
        return import_module(f"fairlane.{name}")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names, loaded or not."""
    return sorted(__all__)
