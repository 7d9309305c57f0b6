"""One Lua runtime with one script: questions go in as flat values, and flat answers or a fault come out."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec
from lupa import lua54

from fairlane.adapters.lua.prelude import (
    ALL_ANSWERED,
    CONFIG_NEEDED,
    CPU_CLOCK,
    FAULT,
    PAUSED,
    PRELUDE,
    TOO_LARGE,
    TOO_LATE,
)
from fairlane.model.limits import CONFIG_KEY_LENGTH_MAX

FAULT_LENGTH_MAX: Final = 500

HookName: TypeAlias = Literal["on_enqueue", "on_failure"]
Config: TypeAlias = Callable[[str, str], str | None]
"""Returns the value that a hook of a queue reads under a name, or None."""
Value: TypeAlias = bytes | int | float | bool | None
"""The types of values that leave a runtime."""

_VALUE_BYTES = 96
"""The overhead of a value in Lua besides its text: header, slots in table and stack, entry in the string table."""
_CONFIG_BYTES_MAX = 256 * 1024
_TEXT_MODE, _BINARY_MODE = b"t", b"b"
_ZERO_ESCAPES = re.compile(r"(?<!\\)(?:\\\\)*\\(?:000|00(?!\d)|0(?!\d)|x00|u\{0+\})|\0")
"""A zero byte in the text of a script, also as an escape: see the library for why no string may have one."""
_OWN_PLACES = re.compile(r'\[string "[^"\n]*"\]:\d+: ')
_SCRIPT_PLACES = re.compile(r"\bline:(\d+):")


class SandboxLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What a script may use for one message.

    Attributes:
        clock: the chunk of Lua that returns the clock by which time is measured; tests count instructions instead.
    """

    timeout_ms: int
    memory_bytes_max: int
    clock: str = CPU_CLOCK


class ScriptFault(Exception):
    """A script cannot be loaded. The text is for its author."""


class SandboxReply(msgspec.Struct, frozen=True):
    """The answers to the next messages, in order, and why the message after them has none, if it failed."""

    values: tuple[Value, ...]
    fault: str | None
    is_last: bool
    """Whether the sandbox has nothing more to say: all messages have been processed, or its time is used up."""
    is_paused: bool = False
    """Whether its time was used up before all messages were processed."""


class Sandbox:
    """A runtime that holds one script of one queue. See ``prelude`` for how it confines the script.

    For one thread at a time. A sandbox that ``is_spent`` has hit a limit and cannot be used any more: the state that
    the script has left in its memory is unknown.
    """

    def __init__(self, script: str | bytes, *, hook: HookName, queue: str, limits: SandboxLimits) -> None:
        """Load a script, from its text or as another sandbox has ``compiled`` it.

        Raises:
            ScriptFault: it is not valid Lua, its top level fails or hits a limit, or it does not define the hook
                function.
        """
        self.is_spent = False
        self._limits = limits
        self._queue = queue
        # Bytes in, bytes out: invalid UTF-8 then concerns one message only. No Python object ever enters that the
        # filter could deny access to; it is the second line of defence.
        self._runtime = lua54.LuaRuntime(
            encoding=None,
            register_eval=False,
            register_builtins=False,
            attribute_filter=_deny,
            max_memory=0,
        )
        self._calls = _Calls(
            *self._runtime.execute(
                PRELUDE, limits.timeout_ms / 1000, encode(queue), hook.encode(), self._runtime.execute(limits.clock)
            ),
        )
        self._memory_bytes = limits.memory_bytes_max + self._runtime.get_memory_used()
        self._given_bytes = self._config_bytes = 0
        self._load(script)

    def _load(self, script: str | bytes) -> None:
        if isinstance(script, str) and _ZERO_ESCAPES.search(script) is not None:
            raise ScriptFault("a script can't contain a zero byte")
        given, mode = (encode(script), _TEXT_MODE) if isinstance(script, str) else (script, _BINARY_MODE)
        self._calls.put(0, 0, given, mode)
        self._given_bytes = len(given) + 2 * _VALUE_BYTES
        if not self._limited(self._calls.begin):
            raise ScriptFault(self._take_fault())

    def compiled(self) -> bytes:
        """Return the script as it was compiled, for other sandboxes: loading that takes a fraction of the time."""
        compiled: bytes = self._calls.compiled()
        return compiled

    def put(self, numbers: Sequence[int], texts: Sequence[bytes], *, most_s: float) -> None:
        """Pass messages in: two numbers for each, and the texts of all; and how long they may take together, about.

        Only these two types may enter. Anything else would arrive as a Python object, which a script could inspect.
        """
        joined = b"".join(texts)
        if b"\0" in joined:
            texts = [text.replace(b"\0", b"") for text in texts]
        self._calls.put(most_s, len(numbers) // 2, *numbers, *texts)
        self._given_bytes = len(joined) + _VALUE_BYTES * (len(numbers) + len(texts))
        self._config_bytes = 0

    def ask(self, config: Config) -> SandboxReply:
        """Run the script for the remaining messages, up to the first fault."""
        calls = self._calls
        try:
            status = self._limited(calls.run)
            while status == CONFIG_NEEDED:
                self._put_config(config)
                status = self._limited(calls.run)
        except ScriptFault as fault:
            return SandboxReply((), str(fault), is_last=True)
        values = calls.take() or ()
        if status == FAULT:
            return SandboxReply(values, self._take_fault(), is_last=False)
        is_paused = status == PAUSED
        return SandboxReply(values, None, is_last=is_paused or status == ALL_ANSWERED, is_paused=is_paused)

    def _limited(self, call: Callable[[], object]) -> object:
        """Make a call that runs code of the script, under the memory limit.

        The limit counts from what the prelude and the values passed in take, so that a script with large messages has
        as much memory of its own as any other. It is set only during the call; see ``prelude`` for why.

        Raises:
            ScriptFault: an error got past the prelude, which must not happen; if it does, the sandbox is spent.
        """
        runtime = self._runtime
        runtime.set_max_memory(self._memory_bytes + self._given_bytes + self._config_bytes)
        try:
            return call()
        except lua54.LuaError as error:
            self.is_spent = True
            raise ScriptFault("failed at one of its limits") from error
        finally:
            runtime.set_max_memory(0)

    def _put_config(self, config: Config) -> None:
        key, waits = self._calls.wanted()
        name = _decode_or_none(key)
        value = config(self._queue, name) if name is not None and len(name) <= CONFIG_KEY_LENGTH_MAX else None
        # A long batch must not accumulate the whole config, so the cache is dropped between messages when it is large.
        # What the current message has read stays: it is run again for each missing key and would otherwise never end.
        is_first = waits == 0 and self._config_bytes > _CONFIG_BYTES_MAX
        text = b"" if value is None else encode(value).replace(b"\0", b"")
        self._config_bytes = (0 if is_first else self._config_bytes) + len(key) + len(text) + 2 * _VALUE_BYTES
        self._calls.put_config(key, text, value is not None, is_first)

    def _take_fault(self) -> str:
        why, text = self._calls.fault()
        if why == TOO_LATE:
            self.is_spent = True
            return f"timed out after {self._limits.timeout_ms} ms"
        if why == TOO_LARGE:
            self.is_spent = True
            return f"used more than {_size(self._limits.memory_bytes_max)}"
        return readable(text.decode("utf-8", "replace"))


class _Calls(msgspec.Struct, frozen=True):
    """The functions that the prelude returns."""

    begin: Any
    put: Any
    put_config: Any
    run: Any
    take: Any
    wanted: Any
    fault: Any
    compiled: Any


def encode(text: str) -> bytes:
    """Return a text in UTF-8, with a question mark for what cannot be encoded."""
    return text.encode("utf-8", "replace")


def readable(text: str) -> str:
    """Return the text of an error in one short line, with line numbers of the author's script only."""
    text = _SCRIPT_PLACES.sub(r"line \1:", _OWN_PLACES.sub("", text))
    text = "".join(sign if sign.isprintable() else " " for sign in text)
    return text if len(text) <= FAULT_LENGTH_MAX else text[: FAULT_LENGTH_MAX - 1] + "…"


def _decode_or_none(text: bytes) -> str | None:
    try:
        return text.decode()
    except UnicodeDecodeError:
        return None


def _size(count: int) -> str:
    mib, kib = 1024 * 1024, 1024
    for unit, name in ((mib, "MiB"), (kib, "KiB")):
        if count % unit == 0:
            return f"{count // unit} {name}"
    return f"{count} bytes"


def _deny(_owner: object, _name: object, _is_setting: object) -> str:
    raise AttributeError("Scripts have no access to Python objects.")
