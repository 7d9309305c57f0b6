"""A harness for apps: a broker in memory on virtual time, and a worker that a test drives.

The broker, the client and the worker are the real ones. They run on a virtual event loop in a thread of their own, so
that code on any other loop or thread, such as a web framework's test client, can send jobs as it does in production.
The worker runs only inside ``run`` and ``advance``, so a test decides when; between them time stands still.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from fairlane.adapters.memory.store import MemoryStore
from fairlane.adapters.system import SystemClock
from fairlane.assembly import open_hooks
from fairlane.broker.engine.engine import Engine
from fairlane.broker.frontends.aio import AsyncBroker
from fairlane.client.aio import AsyncClient
from fairlane.client.message import Message
from fairlane.embedded import EmbeddedTransport
from fairlane.errors import InvalidArgument
from fairlane.model.message import Delivery, MessageView
from fairlane.model.names import is_dlq
from fairlane.model.views import DeadLetterFilter, dead_letters_meant
from fairlane.tasks.options import Duration, span_ms
from fairlane.testing.clock import FakeClock, SeededEntropy
from fairlane.testing.virtual_loop import VirtualLoop
from fairlane.verbs.methods.complete import AllVerbs
from fairlane.verbs.methods.conversions import Held
from fairlane.verbs.verb import Request, Shape
from fairlane.worker.results import Counters

if TYPE_CHECKING:
    from fairlane.tasks.app import App

T = TypeVar("T")
A = TypeVar("A")
LIMIT: Final = "7d"
_SHOWN: Final = 3


class CountingTransport(EmbeddedTransport):
    """Calls to the broker. While one of them waits at the broker, time may pass even if no worker runs."""

    def __init__(self, broker: AsyncBroker) -> None:
        super().__init__(broker)
        self.waiting = 0

    async def call(self, verb: str, request: Shape, *, wait_ms: int = 0) -> Any:  # noqa: ANN401 - see Transport
        """Return the answer to a request; see ``Transport``."""
        self.waiting += 1 if wait_ms else 0
        try:
            return await super().call(verb, request, wait_ms=wait_ms)
        finally:
            self.waiting -= 1 if wait_ms else 0


class HarnessClient(AllVerbs[Message]):
    """All verbs of the harness's broker, for the thread of the test."""

    def __init__(self, call: Callable[[Request[Any]], Any]) -> None:
        self._call = call

    def call(self, request: Request[A], *, by: str | None = None) -> A:
        """Return the answer to a request; see ``Client.call``."""
        if by is not None:
            raise InvalidArgument("A client records the name of its API key; leave out `by`.")
        answer: A = self._call(request)
        return answer

    def ack_soon(self, message: Held, *, cost: int | None = None, result: bytes | None = None) -> None:
        """Acknowledge a leased message."""
        self.ack(message, cost=cost, result=result)

    def _delivered(self, deliveries: list[Delivery]) -> list[Message]:
        return [Message(delivery, self) for delivery in deliveries]


class AppHarness:
    """Runs the jobs of an app on virtual time; see ``App.testing``.

    Attributes:
        client: all verbs of the broker, to look at queues and messages.
        counters: the counts of all runs so far.
    """

    def __init__(self, app: App, *, now: datetime | None = None) -> None:
        start_ms = SystemClock().now_ms() if now is None else round(now.timestamp() * 1000)
        self._app = app
        self._clock = FakeClock(start_ms)
        self._loop = VirtualLoop(self._clock)
        self._thread = threading.Thread(target=self._loop.run_forever, name="fairlane-harness", daemon=True)
        self._opened = ExitStack()
        self._is_running = False
        self._engine = _engine(self._clock)
        self.client = HarnessClient(lambda request: self._do(self._sender.call(request)))
        self.counters = Counters()

    def __enter__(self) -> Self:
        self._thread.start()
        self._do(self._open())
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(self, *_: object) -> None:
        self.__exit__()

    @property
    def now(self) -> datetime:
        """The virtual time, in UTC."""
        return datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC)

    def run(self, *, limit: Duration = LIMIT) -> Counters:
        """Run the worker until no job is left, moving the clock over delays and retries. Return the counts of the run.

        Raises:
            AssertionError: jobs are left after ``limit`` of virtual time.
        """
        until_ms = self._clock.monotonic_ms() + (span_ms("limit", limit) or 0)
        counters = self._do(self._work(lambda: self._is_empty() or self._clock.monotonic_ms() >= until_ms))
        if not self._is_empty():
            raise AssertionError(f"After {limit} there are still jobs: {', '.join(self._left())}.")
        return counters

    def advance(self, span: Duration) -> Counters:
        """Run the worker while virtual time passes, with everything that falls due. Return the counts of the run."""
        until_ms = self._clock.monotonic_ms() + (span_ms("span", span) or 0)
        self._do(self._alarm(until_ms))
        return self._do(self._work(lambda: self._clock.monotonic_ms() >= until_ms))

    def dead_letters(self, queue: str) -> list[MessageView]:
        """Return the dead letters of a queue, with payloads and errors, wherever its policy puts them."""
        dlq, wanted = dead_letters_meant(self.client.queue(queue), DeadLetterFilter())
        letters = self.client.peek(dlq, 1_000, wanted=wanted, with_body=True)
        return [letter for letter in letters if is_dlq(dlq) or letter.dead is not None]

    # ------------------------------------------------------------------------------------------------------- internals

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _open(self) -> None:
        self._engine.open()
        self._broker = AsyncBroker(self._engine)
        transport = CountingTransport(self._broker)
        self._sender = AsyncClient(transport)
        await self._sender.connect()
        self._loop.virtual.is_skipping = lambda: self._is_running or transport.waiting > 0
        self._opened.enter_context(self._app.bound_to(self._sender, self._clock.now_ms))

    async def _close(self) -> None:
        self._opened.close()
        await self._sender.close()
        await self._broker.close()

    async def _alarm(self, at_ms: int) -> None:
        """Set a timer, so that the loop stops at an instant even if nothing else happens then."""
        self._loop.call_at(at_ms / 1000, lambda: None)

    async def _work(self, is_done: Callable[[], bool]) -> Counters:
        """Run the worker until a condition holds while nothing is to be done."""
        done = self._loop.create_future()

        def on_idle() -> bool:
            if is_done() and not done.done():
                done.set_result(None)
                return True
            return False

        worker = self._loop.create_task(self._app.run(self._sender))
        self._is_running, self._loop.virtual.on_idle = True, on_idle
        try:
            await asyncio.wait([done, worker], return_when=asyncio.FIRST_COMPLETED)
            self._app.stop(is_hurried=True)  # so that no more time passes
            await worker
        finally:
            self._is_running, self._loop.virtual.on_idle = False, lambda: False
        counters = self._app.counters
        self.counters = self.counters + counters
        return counters

    def _is_empty(self) -> bool:
        queues = self._engine.ledger.queues
        return not any(queues[name].messages for name in self._app.queues if name in queues)

    def _left(self) -> list[str]:
        """Return the first jobs that are left, as an error names them."""
        views = [view for name in self._app.queues for view in self.client.peek(name, _SHOWN)]
        return [f"{view.id} of {view.queue} is {view.status} after {view.attempts} attempts" for view in views]


def _engine(clock: FakeClock) -> Engine:
    def config_value(key: str) -> str | None:
        return engine.ledger.config.get(key)

    engine = Engine(MemoryStore(), hooks=open_hooks(config_value), clock=clock, entropy=SeededEntropy())
    return engine
