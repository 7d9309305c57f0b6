"""Verbs about a queue that is split as a whole: asked of all of its partitions, and answered as one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from fairlead.errors import QueueNotFound
from fairlead.server.routing import Spread, Whole
from fairlead.wire import verbs as wire
from fairlead.wire.spreading import for_partition


async def each(whole: Whole, name: str, request: wire.Shape) -> list[Any]:
    """Return what each partition answers, in order.

    Raises:
        FairleadError: one of them refused.
    """
    asked = [whole.ask(name, for_partition(request, at)) for at in range(whole.split.made)]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    kept = []
    for at, answer in enumerate(answers):
        if isinstance(answer, QueueNotFound) and whole.is_gone(at):
            continue
        if isinstance(answer, BaseException):
            raise answer
        kept.append(answer)
    return kept


OPERATING: Final[Mapping[str, Spread]] = {}
"""The verbs that all partitions are asked."""
