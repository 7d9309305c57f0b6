"""An auditor of what a broker answered over many lives. It knows only the logs of ``broker_load``, and no broker.

What a log says was answered is certain. What was asked and not answered may have happened or not; the auditor allows
for both, and settles on one as soon as it sees which. Times are compared only where they leave no doubt: a call is
decided somewhere between the two instants of its lines. On a busy machine a thread may write the line of its answer so
late that the lease in it has expired and another thread has leased and acked the message before: fencing tokens tell
which came first.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

Fields = dict[str, Any]
_NEVER = 1 << 62
_ENDING = ("ack", "forward", "nack")
_REFUSALS = ("!lease_mismatch", "!message_not_found", "!message_cancelled")
_ALLOWED = {
    "ack": _REFUSALS,
    "nack": _REFUSALS,
    "extend": _REFUSALS,
    "state": (*_REFUSALS, "!state_mismatch"),
    "forward": (*_REFUSALS, "!queue_full"),
    "cancel": ("!not_pending", "!message_not_found"),
}


@dataclass(eq=False)
class Held:
    """A lease that a client has received."""

    message: Tracked
    queue: str
    token: int
    expires_ms: int
    answered_at: int
    ended_at: int = _NEVER
    is_in_doubt: bool = False
    """Whether a call about it got no answer."""
    open_calls: int = 0


@dataclass(eq=False)
class Write:
    """A write of workflow state; without an etag while its outcome is unknown."""

    value: str
    etag: str | None = None
    answered_at: int = _NEVER


@dataclass(eq=False)
class Tracked:
    """A message that is known to have been enqueued."""

    id: str
    name: str
    leases: dict[int, Held] = field(default_factory=dict)
    writes: list[Write] = field(default_factory=list)
    acked_token: int | None = None
    gone_at: int = _NEVER
    """The line of the log at which it was reported gone."""
    may_be_gone: bool = False
    open_cancels: int = 0
    """How many cancels of it have no answer yet: each may have ended its lease."""

    def last_token(self) -> int:
        """Return the greatest fencing token seen of it."""
        return max(self.leases, default=0)


@dataclass(eq=False)
class Call:
    """A request that has no answer yet."""

    asked: Fields
    at: int
    token_floor: int


class Auditor:
    """Reads the logs of one process after the other, and records every broken promise.

    Where the store may fail, a call that was refused with ``store_failed`` is one without an answer.
    """

    def __init__(self, *, may_fail: bool = False) -> None:
        self._may_fail = may_fail
        self.faults: list[str] = []
        self.counts: Counter[str] = Counter()
        self.messages: dict[str, Tracked] = {}
        self.names: dict[str, str] = {}
        self.dedup_ids: dict[str, tuple[str, str]] = {}
        self._asked_names: set[str] = set()
        self._leases: dict[tuple[str, int], Held] = {}
        self._config: dict[str, list[str]] = {}
        self._config_known: dict[str, str] = {}
        self._forwards: list[tuple[str, list[str]]] = []
        self._open: dict[int, Call] = {}
        self._token_floor = 0
        self._at = 0
        self._survey_at = 0

    # ---------------------------------------------------------------------------------------------------------- reading

    def read_life(self, lines: list[bytes]) -> None:
        """Read the log of one process. Only the last line may be incomplete."""
        for at, line in enumerate(lines):
            try:
                fields = json.loads(line)
            except ValueError:
                if at != len(lines) - 1:
                    self._fault(f"line {at} of a log is torn")
                continue
            self._at += 1
            if "n" in fields:
                self._ask(fields)
            else:
                self._answer(self._open.pop(fields["of"]), fields)
        for call in self._open.values():
            self._leave_open(call)
        self._open.clear()
        self._at += 1

    def _fault(self, text: str) -> None:
        self.faults.append(f"line {self._at}: {text}")

    def _ask(self, fields: Fields) -> None:
        if fields["do"] == "panic":
            self._fault(f"the process broke down: {fields['text']}")
            return
        call = self._open[fields["n"]] = Call(fields, self._at, self._token_floor)
        for held in self._held_by(call):
            held.open_calls += 1
        for message in self._cancelled_by(call):
            message.open_cancels += 1
        if fields["do"] in ("enqueue", "forward"):
            self._asked_names.update(fields["names"])
        if fields["do"] == "state":
            for held in self._held_by(call):
                held.message.writes.append(Write(fields["value"]))
        if fields["do"] == "config":
            self._config.setdefault(fields["key"], []).append(fields["value"])
        if fields["do"] == "enqueue":
            for name, dedup_id in zip(fields["names"], fields["dedups"], strict=True):
                if dedup_id is not None:
                    self.dedup_ids.setdefault(dedup_id, (fields["queue"], name))

    def _held_by(self, call: Call) -> list[Held]:
        receipts = call.asked.get("receipts", ())
        return [self._leases[message_id, token] for message_id, token in receipts]

    def _cancelled_by(self, call: Call) -> list[Tracked]:
        return [self.messages[message_id] for message_id in call.asked.get("ids", ())]

    def _answer(self, call: Call, answered: Fields) -> None:
        verb = call.asked["do"]
        for message in self._cancelled_by(call):
            message.open_cancels -= 1
        if self._may_fail and answered.get("error") == "store_failed":
            self.counts["calls refused with store_failed"] += 1
            self._leave_open(call, is_last=False)
            return
        for held in self._held_by(call):
            held.open_calls -= 1
        if "error" in answered and f"!{answered['error']}" not in _ALLOWED.get(verb, ()):
            self._fault(f"{verb} was refused: {answered['text']}")
        elif verb == "enqueue":
            self._enqueued(call, answered["ids"])
        elif verb == "lease":
            for line in answered["got"]:
                self._leased(call, answered, line)
        elif verb == "cancel":
            self._cancelled(call, answered["results"])
        elif verb == "config":
            self._config_known[call.asked["key"]] = call.asked["value"]
        elif verb == "survey":
            self._surveyed(call, answered)
        elif "receipts" in call.asked:
            self._settled(call, answered)

    def _leave_open(self, call: Call, *, is_last: bool = True) -> None:
        """Allow for both: the process died before it could say what was answered, or could not know it.

        Where this is not the last of a life, the same life may have gone on to ack what it failed to forward.
        """
        verb = call.asked["do"]
        self.counts["calls without an answer"] += 1
        for held in self._held_by(call):
            held.open_calls -= 1
            held.is_in_doubt = held.is_in_doubt or verb != "state"
            if verb in ("ack", "forward"):
                held.message.may_be_gone = True
            if verb == "forward" and is_last:
                self._forwards.append((held.message.id, call.asked["names"]))
        for message in self._cancelled_by(call):
            message.may_be_gone = True

    # ------------------------------------------------------------------------------------------------- enqueue and take

    def _enqueued(self, call: Call, ids: list[str]) -> None:
        for name, message_id, dedup_id in zip(call.asked["names"], ids, call.asked["dedups"], strict=True):
            if message_id.startswith("!"):
                if message_id != "!queue_full" or name in self.names:
                    self._fault(f"the enqueue of {name} was refused with {message_id}")
                continue
            self.counts["enqueues answered"] += 1
            if dedup_id is not None and name in self.names:
                self.counts["enqueues repeated with a dedup id"] += 1
            self._meet(name, message_id)

    def _meet(self, name: str, message_id: str) -> Tracked:
        """Record that a message exists, and return what is known about it."""
        if name not in self._asked_names:
            self._fault(f"message {message_id} is {name}, which nobody has enqueued")
        known = self.names.setdefault(name, message_id)
        if known != message_id:
            self._fault(f"{name} is there twice, as {known} and {message_id}")
        message = self.messages.get(message_id)
        if message is None:
            message = self.messages[message_id] = Tracked(message_id, name)
        elif message.name != name:
            self._fault(f"message {message_id} is {name} and was {message.name}")
        return message

    def _cancelled(self, call: Call, results: list[str | None]) -> None:
        for message_id, result in zip(call.asked["ids"], results, strict=True):
            if result is None:
                self.counts["cancelled"] += 1
                self.messages[message_id].gone_at = self._at
            elif result not in _ALLOWED["cancel"]:
                self._fault(f"cancel of {message_id} was refused with {result}")

    def _leased(self, call: Call, answered: Fields, line: list[Any]) -> None:
        message_id, token, expires_ms, name, attempt, state, etag = line
        message = self._meet(name, message_id)
        self.counts["deliveries"] += 1
        self.counts["re-deliveries"] += attempt > 1
        if message.gone_at < call.at or token > (message.acked_token or _NEVER):
            self._fault(f"message {message_id} was delivered with token {token} though it was acked or taken out")
        if token <= call.token_floor or (message_id, token) in self._leases:
            self._fault(f"token {token} of {message_id} is not greater than {call.token_floor}")
        for other in message.leases.values():
            self._check_over(call, other, answered["ms"])
        self._check_state(message, state, etag, before=call.at)
        message.may_be_gone = message.may_be_gone and token < message.last_token()
        held = Held(message, call.asked["queue"], token, expires_ms, self._at)
        message.leases[token] = self._leases[message_id, token] = held
        self._token_floor = max(self._token_floor, token)

    def _check_over(self, call: Call, held: Held, now_ms: int) -> None:
        """Check that no client holds a message when another one gets it."""
        is_live = held.ended_at == _NEVER and not held.is_in_doubt and not held.open_calls
        if is_live and held.answered_at < call.at and now_ms < held.expires_ms:
            left_ms = held.expires_ms - now_ms
            self._fault(f"message {held.message.id} was leased again while lease {held.token} was live, {left_ms} ms")

    # ------------------------------------------------------------------------------------------------ acting on a lease

    def _settled(self, call: Call, answered: Fields) -> None:
        verb, held = call.asked["do"], self._held_by(call)
        results = answered.get("results", [f"!{answered.get('error')}"] * len(held))
        if verb == "forward" and "ids" in answered:
            for name, message_id in zip(call.asked["names"], answered["ids"], strict=True):
                self.counts["enqueues answered"] += 1
                self.counts["of these forwarded with an ack"] += 1
                self._meet(name, message_id)
        for lease, result in zip(held, results, strict=True):
            if isinstance(result, str) and result.startswith("!"):
                self._refused(verb, call, lease, result, answered["ms"])
            else:
                self._accepted(verb, call, lease, result)

    def _refused(self, verb: str, call: Call, held: Held, code: str, now_ms: int) -> None:
        self.counts[f"refused with {code[1:]}"] += 1
        if code not in _ALLOWED[verb]:
            self._fault(f"{verb} of {held.message.id} was refused with {code}")
        if verb == "state":
            self._forget_write(held.message, call.asked["value"])
        if code in _REFUSALS and self._is_surely_live(held, now_ms):
            self._fault(f"{verb} of {held.message.id} was refused with {code} while lease {held.token} was live")

    @staticmethod
    def _is_surely_live(held: Held, now_ms: int) -> bool:
        is_undisturbed = held.ended_at == _NEVER and not held.is_in_doubt and not held.open_calls
        message = held.message
        is_latest = held.token == message.last_token() and message.gone_at == _NEVER
        is_kept = not message.may_be_gone and not message.open_cancels
        return is_undisturbed and is_latest and is_kept and now_ms < held.expires_ms

    def _accepted(self, verb: str, call: Call, held: Held, result: Any) -> None:
        message = held.message
        later = [lease for token, lease in message.leases.items() if token > held.token]
        if any(lease.answered_at < call.at for lease in later):
            self._fault(f"a stale {verb} of {message.id} with token {held.token} was accepted")
        if held.ended_at < call.at or message.gone_at < call.at:
            self._fault(f"{verb} of {message.id} with token {held.token} was accepted after that lease had ended")
        if not held.is_in_doubt and not held.open_calls and call.asked["ms"] >= held.expires_ms:
            self._fault(f"{verb} of {message.id} with token {held.token} was accepted after that lease had expired")
        if held.answered_at < self._survey_at:
            self.counts["receipts of an earlier life that were still good"] += 1
        if verb in _ENDING:
            held.ended_at = min(held.ended_at, self._at)
        if verb in ("ack", "forward"):
            self._acked(held, later)
        elif verb == "nack":
            self.counts["nacked"] += 1
        elif verb == "extend":
            self.counts["extended"] += 1
            held.expires_ms = result
        elif verb == "state":
            self._wrote(message, call.asked["value"], result)

    def _acked(self, held: Held, later: list[Held]) -> None:
        message = held.message
        self.counts["acked"] += 1
        if later or message.acked_token is not None:
            self._fault(f"message {message.id} was acked with token {held.token} and leased or acked besides")
        message.acked_token = held.token
        message.gone_at = min(message.gone_at, self._at)

    # --------------------------------------------------------------------------------------------------- workflow state

    @staticmethod
    def _forget_write(message: Tracked, value: str) -> None:
        message.writes = [write for write in message.writes if write.value != value]

    def _wrote(self, message: Tracked, value: str, etag: str) -> None:
        self.counts["states written"] += 1
        for write in message.writes:
            if write.value == value:
                write.etag, write.answered_at = etag, self._at

    def _check_state(self, message: Tracked, state: str | None, etag: str | None, *, before: int) -> None:
        """Check that a state is the last one that was answered, or a later one."""
        floor = max((write.etag or "" for write in message.writes if write.answered_at < before), default="")
        if etag is None or state is None:
            if floor or etag is not None or state is not None:
                self._fault(f"message {message.id} has lost its state of version {floor}")
            return
        known = {write.etag: write.value for write in message.writes if write.etag is not None}
        unsure = [write for write in message.writes if write.etag is None and write.value == state]
        if etag < floor or (known.get(etag) != state and not unsure):
            self._fault(f"message {message.id} has the state {state} of version {etag}, not of {floor}")
        for write in unsure:
            write.etag, write.answered_at = etag, self._at

    # --------------------------------------------------------------------------------------------------- looking around

    def _surveyed(self, call: Call, answered: Fields) -> None:
        """Compare the content of the broker with the expected one, while nothing else happens."""
        self._survey_at = self._at
        self.counts["surveys"] += 1
        found: dict[str, tuple[str, int]] = {}
        for message_id, queue, name, token, state, etag in answered["messages"]:
            message = self._meet(name, message_id)
            found[message_id] = (queue, token or 0)
            self._check_state(message, state, etag, before=call.at)
            if message.gone_at < _NEVER or message.acked_token is not None:
                self._fault(f"message {message_id} is there again though it was acked or taken out")
            if token is not None and token < message.last_token():
                self._fault(f"message {message_id} is under lease {token} though {message.last_token()} was given out")
        for message in self.messages.values():
            self._check_there(message, found.get(message.id), answered["ms"])
        self._check_forwards(found)
        self._check_config(answered["config"])

    def _check_there(self, message: Tracked, place: tuple[str, int] | None, now_ms: int) -> None:
        if place is None:
            if message.gone_at == _NEVER and not message.may_be_gone:
                self._fault(f"message {message.id}, {message.name}, is lost")
            message.gone_at = min(message.gone_at, self._at)
            return
        message.may_be_gone = False
        held = message.leases.get(message.last_token())
        if held is not None and self._is_surely_live(held, now_ms) and place[1] != held.token:
            self._fault(f"message {message.id} is in {place} though lease {held.token} is live")

    def _check_forwards(self, found: dict[str, tuple[str, int]]) -> None:
        """Check that a forward without an answer was carried out completely or not at all."""
        for message_id, names in self._forwards:
            is_acked = message_id not in found
            for name in names:
                is_forwarded = name in self.names
                if is_acked != is_forwarded:
                    self._fault(f"message {message_id} is acked: {is_acked}, but {name} is forwarded: {is_forwarded}")
        self._forwards.clear()

    def _check_config(self, config: dict[str, str]) -> None:
        for key, values in self._config.items():
            known = self._config_known.get(key)
            possible = values if known is None else values[values.index(known) :]
            value = config.get(key)
            if value not in possible and not (known is None and value is None):
                self._fault(f"config {key} is {value!r} and was set to {known!r}")
            if value is not None:
                self._config_known[key] = value

    # ----------------------------------------------------------------------------------------------------- what is left

    def receipts(self) -> Iterator[tuple[str, str, int]]:
        """Yield all receipts ever given out, latest last: queue, id and token."""
        for (message_id, token), held in self._leases.items():
            yield held.queue, message_id, token
