"""The broker for threads: the thread that has a request runs the cycle.

There is one lock. A caller puts its request in line and takes the lock; if by then another has answered it, there is
nothing left to do, otherwise it runs a cycle, for itself and for all who have come in meanwhile. While it waits for the
disk, others line up for the next cycle: group commit without a thread to hand work to. A pacer thread runs the cycles
that become due by time alone.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from typing import Any, Generic, Self, TypeVar, cast

from fairlane.broker.cycle import Cycle
from fairlane.broker.engine.engine import Engine
from fairlane.broker.frontends.deliveries import CREDIT, Deliveries
from fairlane.broker.frontends.fetch_threads import FetchThreads
from fairlane.broker.frontends.unclosed import warn_unclosed
from fairlane.broker.handlers import submission_of
from fairlane.broker.requests import Attach, AttachedConsumer, Submission
from fairlane.core.commands import Command
from fairlane.errors import Closed, WrongProcess
from fairlane.model.message import Delivery
from fairlane.verbs.leases import LeasedMessages
from fairlane.verbs.methods.complete import AllVerbs
from fairlane.verbs.verb import Request

A = TypeVar("A")

_SLEEP_S_MAX = 3600.0
_log = logging.getLogger("fairlane.broker")


class _Slot(Generic[A]):
    """A reply to one thread."""

    __slots__ = ("_error", "_is_done", "_result", "_waker")

    def __init__(self) -> None:
        self._is_done = False
        self._result: A | None = None
        self._error: BaseException | None = None
        self._waker: threading.Event | None = None

    def done(self) -> bool:
        return self._is_done

    def set_result(self, result: A, /) -> None:
        self._result = result
        self._end()

    def set_exception(self, exception: BaseException, /) -> None:
        self._error = exception
        self._end()

    def give_up(self) -> A | None:
        """Give up waiting, so that the engine skips this reply, and return what has come already."""
        self._is_done = True
        return self._result

    def _end(self) -> None:
        self._is_done = True
        if self._waker is not None:
            self._waker.set()

    def wait(self) -> None:
        """Wait until there is an answer. Do not hold the cycle's lock meanwhile."""
        self._waker = threading.Event()
        if not self._is_done:
            self._waker.wait()

    def get(self) -> A:
        if self._error is not None:
            raise self._error
        return cast("A", self._result)


class Broker(AllVerbs[Delivery]):
    """A durable, fair broker in this process, for any number of threads. See ``fairlane.assembly.open_broker``.

    Durability and order are those of the verbs. Close it, or use it as a context manager; a process that dies without
    loses nothing that was answered.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._is_closed = False
        self._alarm = threading.Condition()
        self._alarm_at_ms: int | None = None
        self._fetch_threads = FetchThreads(lambda: self._set_alarm(0))
        engine.fetches.run = self._fetch_threads.run
        self._pacer = threading.Thread(target=self._pace, name="fairlane-pacer", daemon=True)
        self._pacer.start()
        atexit.register(self._warn_unclosed)
        self._run()

    def call(self, request: Request[A] | Command[A], *, by: str | None = None) -> A:
        """Return the answer to a request, once everything that it depends on is durable."""
        slot: _Slot[A] = _Slot()
        return self._answered(submission_of(self._engine, request, slot, by), slot)

    def _answered(self, submission: Submission, slot: _Slot[A]) -> A:
        if os.getpid() != self._process:
            raise WrongProcess("This broker was opened before the fork, in the parent process.")
        if self._is_closed:
            raise Closed("The broker has been closed.")
        self._engine.submit(submission)
        try:
            self._run(slot)
            if not slot.done():
                slot.wait()
        except BaseException:
            came = slot.give_up()
            if isinstance(came, LeasedMessages) and came.deliveries:
                self._engine.give_back(came.deliveries[0].queue, came.deliveries)
            raise
        return slot.get()

    def _attach(self, consumer: AttachedConsumer, *, is_closing: bool = False) -> None:
        """Begin to deliver to a consumer, or end it."""
        slot: _Slot[None] = _Slot()
        self._answered(Attach(consumer, slot, is_closing=is_closing), slot)

    def _widen(self, consumer: AttachedConsumer, handlers: int) -> None:
        """Change how many messages a consumer processes at the same time."""
        with self._lock:
            consumer.handlers = handlers
            self._engine.consumers.serve_again(consumer.queue)
        self._run()

    def _delivered(self, deliveries: list[Delivery]) -> list[Delivery]:
        return deliveries

    def consume(
        self,
        queue: str,
        *,
        credit: int = CREDIT,
        visibility_ms: int | None = None,
        owner: str | None = None,
        with_state: bool = False,
        handlers: int | None = None,
    ) -> Deliveries:
        """Return a stream of leased messages, to be entered with ``with`` and iterated with ``for``.

        At most ``credit`` messages are in the stream or out of it and not yet acked, nacked or expired. Those with a
        deadline or a throttle or of a key with a cap come only while fewer than ``handlers`` are. By default that is
        one more than you hold whenever you ask for a message.
        """
        return Deliveries(
            self,
            queue=queue,
            credit=credit,
            visibility_ms=visibility_ms,
            owner=owner,
            with_state=with_state,
            handlers=handlers,
        )

    def close(self) -> None:
        """Finish what has been asked, let waiting consumers go with nothing, and let go of the store.

        In a forked process it does nothing: the store is the other's.
        """
        if os.getpid() != self._process:
            return
        with self._lock:
            if self._is_closed:
                return
            self._engine.dismiss_consumers()
            while self._engine.has_requests():
                self._cycle()
            self._is_closed = True
            self._fetch_threads.stop()
            self._engine.close()
        atexit.unregister(self._warn_unclosed)
        with self._alarm:
            self._alarm.notify_all()
        if threading.current_thread() is not self._pacer:
            self._pacer.join()

    @property
    def is_closed(self) -> bool:
        """Whether it was closed: no request is taken any more."""
        return self._is_closed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _warn_unclosed(self) -> None:
        if os.getpid() == self._process:
            warn_unclosed(self)

    # ----------------------------------------------------------------------------------------------------------- cycles

    def _run(self, slot: _Slot[Any] | None = None) -> None:
        """Run cycles until there is nothing to do, unless another thread has done it meanwhile."""
        with self._lock:
            if self._is_closed and slot is not None and not slot.done():
                slot.set_exception(Closed("The broker has been closed."))
            if self._is_closed or (slot is not None and slot.done()):
                return
            self._cycle()
            while self._engine.has_requests() and (slot is None or not slot.done()):
                self._cycle()
            at_ms = self._engine.next_event_at()
        if self._engine.has_requests():
            at_ms = 0
        if at_ms is not None and (self._alarm_at_ms is None or at_ms < self._alarm_at_ms):
            self._set_alarm(at_ms)

    def _set_alarm(self, at_ms: int) -> None:
        """Make the pacer run a cycle at an instant, unless it does that earlier."""
        with self._alarm:
            if self._alarm_at_ms is None or at_ms < self._alarm_at_ms:
                self._alarm_at_ms = at_ms
                self._alarm.notify_all()

    def _cycle(self) -> None:
        engine = self._engine
        cycle = None
        try:
            cycle = engine.begin()
            if cycle.records:
                engine.write(cycle)
                engine.sync()
            engine.finish(cycle)
        except Exception as error:  # noqa: BLE001 - whatever it is, what the store holds is unknown
            engine.fail(cycle if cycle is not None else Cycle(engine.now_ms(), 0), error)
        except BaseException:
            # Interrupted in the middle: what is in memory may not be what is in the store.
            engine.distrust(cycle)
            raise

    def _pace(self) -> None:
        """Run the cycles that time asks for."""
        while not self._is_closed:
            with self._alarm:
                at_ms = self._alarm_at_ms
                now_ms = self._engine.now_ms()
                if at_ms is None or at_ms > now_ms:
                    self._alarm.wait(None if at_ms is None else min((at_ms - now_ms) / 1000, _SLEEP_S_MAX))
                    continue
                self._alarm_at_ms = None
            try:
                self._run()
            except Exception:  # noqa: BLE001 - the next one still has to come
                _log.exception("Unexpected error in a timed cycle.")
