"""Attacks by the scripts of a queue."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from fairlane.model.limits import HOOK_TIMEOUT_MS_MAX
from fairlane.testing.attack.attack import Attack, Outcome
from fairlane.testing.attack.target import AttackedServer
from fairlane.verbs.keys import Grant

_SLOW: Final = "function on_enqueue(message) local x = 0 for i = 1, {steps} do x = x + i end return {{}} end"
_ENDLESS: Final = "function on_enqueue(message) while true do end end"
_PATIENT, _TIMES = 10, 20
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


def patient_hook(target: AttackedServer, begin: Callable[[], None]) -> Outcome:
    """Enqueue message after message through a hook that never ends, with the longest timeout that a policy may have."""
    queue = target.queue("patient", on_enqueue=_ENDLESS, hook_timeout_ms=HOOK_TIMEOUT_MS_MAX)
    api_key = target.api_key("patient", Grant(right="admin", queues=queue))
    longer = {"queue": queue, "policy": {"hook_timeout_ms": HOOK_TIMEOUT_MS_MAX + 1}}
    is_taken = target.post("queues/update", longer, api_key=api_key).is_success
    begin()
    refused = 0
    body = {"queue": queue, "messages": [{}] * _PATIENT}
    for _ in range(_TIMES):
        refused += not target.post("queue/enqueue", body, api_key=api_key).is_success
        update = {"queue": queue, "policy": {"on_enqueue": _ENDLESS}}  # closes the breaker
        target.post("queues/update", update, api_key=api_key)
    return Outcome(_TIMES, refused, "a policy allows its script more time" if is_taken else "")


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
    Attack("patient-hook", "H1", "a hook with the longest timeout", patient_hook),
    Attack("slow-compile", "H1", "scripts that take long to compile", long_script),
)
