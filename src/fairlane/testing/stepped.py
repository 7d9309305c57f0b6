"""A broker whose clock stands still until a test moves it: no threads, no event loop, no waiting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

from fairlane.adapters.memory.store import MemoryStore
from fairlane.assembly import open_hooks
from fairlane.broker.engine.engine import Engine
from fairlane.broker.engine.housekeeping import CARRY_FLOOR
from fairlane.broker.handlers import submission_of
from fairlane.broker.requests import Attach, AttachedConsumer, Submission
from fairlane.broker.settings import Settings
from fairlane.core.commands import Command
from fairlane.core.rows.messages import ROWS_FROM
from fairlane.model.message import Delivery
from fairlane.ports.disk import Disk
from fairlane.ports.entropy import Entropy
from fairlane.ports.hooks import Hooks
from fairlane.ports.store import Store
from fairlane.testing.clock import FakeClock, SeededEntropy
from fairlane.verbs.methods.complete import AllVerbs
from fairlane.verbs.verb import Request

A = TypeVar("A")


class Pending(Generic[A]):
    """An answer that has arrived, or arrives with a later step."""

    def __init__(self) -> None:
        self._is_done = False
        self._result: A | None = None
        self._error: BaseException | None = None

    def done(self) -> bool:
        """Return whether the answer has arrived or the wait was cancelled."""
        return self._is_done

    def set_result(self, result: A, /) -> None:
        """Answer the request."""
        self._result, self._is_done = result, True

    def set_exception(self, exception: BaseException, /) -> None:
        """Reject the request with an error."""
        self._error, self._is_done = exception, True

    def cancel(self) -> None:
        """Stop waiting for the answer."""
        self._is_done = True

    def get(self) -> A:
        """Return the answer, or raise the error."""
        if self._error is not None:
            raise self._error
        return cast("A", self._result)


class SteppedBroker(AllVerbs[Delivery]):
    """A broker on a fake clock, in the calling thread.

    A verb that has to wait moves the clock to the next event, again and again, until it is answered. ``start`` submits
    a request without running it, ``step`` runs what is due, and ``advance`` moves the clock and stops at every event on
    the way.
    """

    def __init__(
        self,
        store: Store | None = None,
        *,
        clock: FakeClock | None = None,
        entropy: Entropy | None = None,
        hooks: Hooks | None = None,
        disk: Disk | None = None,
        settings: Settings | None = None,
        carry_floor: int = CARRY_FLOOR,
        rows_from: int | None = ROWS_FROM,
    ) -> None:
        self._rows_from = rows_from
        self.clock = clock if clock is not None else FakeClock()
        self.store = store if store is not None else MemoryStore()
        self._hooks = hooks if hooks is not None else open_hooks(self._config_value, settings)
        self._entropy = entropy if entropy is not None else SeededEntropy()
        self._disk = disk
        self._settings = settings
        self._carry_floor = carry_floor
        self._engine = self._make_engine()
        self._engine.open()

    def _config_value(self, key: str) -> str | None:
        return self._engine.ledger.config.get(key)

    def _make_engine(self) -> Engine:
        return Engine(
            self.store,
            hooks=self._hooks,
            clock=self.clock,
            entropy=self._entropy,
            disk=self._disk,
            settings=self._settings,
            carry_floor=self._carry_floor,
            rows_from=self._rows_from,
        )

    @property
    def engine(self) -> Engine:
        """The engine, for inspection."""
        return self._engine

    def reopen(self) -> None:
        """Drop everything in memory, as a crash does, and open a new broker on the same store."""
        self._engine = self._make_engine()
        self._engine.open()

    def call(self, request: Request[A] | Command[A], *, by: str | None = None) -> A:
        """Return the answer to a request, moving the clock if it has to wait."""
        return self.wait(self.start(request, by=by))

    def wait(self, pending: Pending[A]) -> A:
        """Run cycles and move the clock to the next event until the request is answered."""
        self.step()
        while not pending.done():
            at_ms = self._engine.next_event_at()
            if at_ms is None:
                raise AssertionError("No later event can answer this request. Enqueue, acknowledge or advance() first.")
            self.clock.advance(max(0, at_ms - self._engine.now_ms()))
            self.step()
        return pending.get()

    def start(self, request: Request[A] | Command[A], *, by: str | None = None) -> Pending[A]:
        """Submit a request without running a cycle."""
        pending: Pending[A] = Pending()
        self._engine.submit(submission_of(self._engine, request, pending, by))
        return pending

    def submit(self, make: Callable[[Pending[Any]], Submission]) -> Pending[Any]:
        """Submit what ``make`` builds around a reply, without running a cycle."""
        pending: Pending[Any] = Pending()
        self._engine.submit(make(pending))
        return pending

    def _delivered(self, deliveries: list[Delivery]) -> list[Delivery]:
        return deliveries

    def attach(
        self, queue: str, *, credit: int = 32, owner: str | None = None, handlers: int | None = None
    ) -> tuple[AttachedConsumer, list[Delivery]]:
        """Attach a streaming consumer, and return it with the list that its deliveries are appended to."""
        got: list[Delivery] = []
        consumer = AttachedConsumer(queue=queue, credit=credit, deliver=got.extend, owner=owner, handlers=handlers)
        self.wait(self.submit(lambda reply: Attach(consumer, reply)))
        return consumer, got

    def detach(self, consumer: AttachedConsumer) -> None:
        """Detach a streaming consumer."""
        self.wait(self.submit(lambda reply: Attach(consumer, reply, is_closing=True)))

    def close(self) -> None:
        """Close the store."""
        self._engine.close()

    def step(self) -> None:
        """Run cycles until no request is left."""
        self.cycle()
        while self._engine.has_requests():
            self.cycle()

    def cycle(self) -> None:
        """Run one cycle of the engine."""
        cycle = self._engine.begin()
        try:
            if cycle.records:
                self._engine.write(cycle)
                self._engine.sync()
        except Exception as error:  # noqa: BLE001 - as the other front ends do
            self._engine.fail(cycle, error)
            return
        self._engine.finish(cycle)

    def advance(self, ms: int) -> None:
        """Move the clock, and run each event at its own time on the way."""
        end_ms = self.clock.now_ms() + ms
        while True:
            at_ms = self._engine.next_event_at()
            wait_ms = None if at_ms is None else max(0, at_ms - self._engine.now_ms())
            if wait_ms is None or self.clock.now_ms() + wait_ms > end_ms:
                break
            self.clock.advance(wait_ms)
            self.step()
        self.clock.advance(end_ms - self.clock.now_ms())
        self.step()
