"""An event loop in its own thread, for programs without one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from typing import Any, TypeVar

from fairlane.errors import Closed, WrongEventLoop
from fairlane.runtime import new_event_loop

T = TypeVar("T")


class Portal:
    """Runs coroutines on a background event loop for any number of threads."""

    def __init__(self) -> None:
        self.loop = new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="fairlane-client", daemon=True)
        self._thread.start()

    @property
    def is_current(self) -> bool:
        """Whether the caller is a callback on the loop itself."""
        return threading.get_ident() == self._thread.ident

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and return its result. If the caller is interrupted, the coroutine is cancelled.

        Raises:
            Closed: the loop has ended.
            WrongEventLoop: a callback on the loop itself called it, which would deadlock.
        """
        if self.is_current:
            coroutine.close()
            raise WrongEventLoop("A callback of the client called the client, which would deadlock.")
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        except RuntimeError as error:
            coroutine.close()
            raise Closed("The client is closed.") from error
        try:
            return future.result()
        except CancelledError as error:
            raise Closed("The client was closed during the call.") from error
        except BaseException:
            future.cancel()
            raise

    def soon(self, callback: Callable[[], object]) -> None:
        """Call a function on the loop without waiting for it. Raises Closed if the loop has ended."""
        try:
            self.loop.call_soon_threadsafe(callback)
        except RuntimeError as error:
            raise Closed("The client is closed.") from error

    def close(self) -> None:
        """Stop the loop and its thread."""
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
