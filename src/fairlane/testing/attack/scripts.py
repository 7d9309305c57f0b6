"""Attacks by the scripts of a queue."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from fairlane.testing.attack.attack import Attack, Outcome
from fairlane.testing.attack.target import AttackedServer
from fairlane.verbs.keys import Grant

_SLOW: Final = "function on_enqueue(message) local x = 0 for i = 1, {steps} do x = x + i end return {{}} end"
_LONG: Final = "function on_enqueue(message) return {} end x=" + "a or " * 13_000 + "a"


def slow_hook(target: AttackedServer, begin: Callable[[], None]) -> Outcome:
    """Enqueue many messages through a hook that takes milliseconds for each, without a fault."""
    queue = target.queue("hook", on_enqueue=_SLOW.format(steps=120_000))
    api_key = target.api_key("hook", Grant(right="admin", queues=queue))
    begin()
    counts = (300, 1_100)
    answers = [
        target.post("queue/enqueue", {"queue": queue, "messages": [{}] * count}, api_key=api_key) for count in counts
    ]
    return Outcome(sum(counts), sum(not answer.is_success for answer in answers))


def long_script(target: AttackedServer, begin: Callable[[], None]) -> Outcome:
    """Set and try scripts that take long to compile."""
    queue = target.queue("compile")
    api_key = target.api_key("compile", Grant(right="admin", queues=queue))
    begin()
    tried = {"queue": queue, "hook": "on_enqueue", "script": _LONG}
    updated = {"queue": queue, "policy": {"on_enqueue": _LONG}}
    answers = [
        target.post(path, body, api_key=api_key)
        for path, body in (("queues/hook/try", tried), ("queues/update", updated), ("queues/hook/try", tried))
    ]
    target.post("queue/enqueue", {"queue": queue, "messages": [{}] * 5}, api_key=api_key)
    return Outcome(len(answers) + 5, sum(not answer.is_success for answer in answers))


ATTACKS: Final = (
    Attack("slow-hook", "H1", "a slow hook", slow_hook),
    Attack("slow-compile", "H1", "scripts that take long to compile", long_script),
)
