"""An event loop in a thread of its own, for those who have none."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from typing import Any, TypeVar

from fairlane.errors import Closed, WrongEventLoop

T = TypeVar("T")


class Portal:
    """Runs coroutines in the loop of a thread, for any number of other threads."""

    def __init__(self) -> None:
        self.loop = _new_loop()
        self._thread = threading.Thread(target=self._serve, name="fairlane-client", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Return what a coroutine returns. When the caller is interrupted, so is the coroutine.

        Raises:
            Closed: the loop is gone.
            WrongEventLoop: it is called in the loop itself, by a callback, which would wait for itself.
        """
        if threading.get_ident() == self._thread.ident:
            coroutine.close()
            raise WrongEventLoop("A callback of the client called the client and would wait for ever.")
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        except RuntimeError as error:
            coroutine.close()
            raise Closed("The client has been closed.") from error
        try:
            return future.result()
        except CancelledError as error:
            raise Closed("The client was closed meanwhile.") from error
        except BaseException:
            future.cancel()
            raise

    def soon(self, callback: Callable[[], object]) -> None:
        """Have something called in the loop.

        Raises:
            Closed: the loop is gone.
        """
        try:
            self.loop.call_soon_threadsafe(callback)
        except RuntimeError as error:
            raise Closed("The client has been closed.") from error

    def close(self) -> None:
        """End the loop, and the thread with it."""
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            left = asyncio.all_tasks(self.loop)
            for task in left:
                task.cancel()
            self.loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
        finally:
            self.loop.close()


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop  # noqa: PLC0415 - not on every platform, and nobody but us sees this loop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
