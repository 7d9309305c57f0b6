"""The options of ``format("fairlane")``: read once on the driver, and refused there if they make no sense."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, Final, Literal, TypeVar

import msgspec

from fairlane.client.cluster_transport import addresses_of
from fairlane.errors import InvalidArgument
from fairlane.journal.events import KINDS
from fairlane.journal.schema import NAMES
from fairlane.model.limits import CLAIM_MAX
from fairlane.model.message import Key
from fairlane.model.names import dlq_of, is_dlq
from fairlane.spark.source.server_address import ServerAddress

KIND: Final = "kind"
READ_KINDS: Final = ("journal", "queue", "dead_letters", "peek")
BEGINNING, END = "beginning", "end"

_OF_SPARK: Final = ("checkpointlocation", "queryname")
"""Options that Spark hands on to sources and sinks though they are its own."""

T = TypeVar("T")
_Read = Callable[[str, str], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalOptions:
    """What to read of a journal; see ``docs/reference/spark.md``."""

    place: ServerAddress | None = None
    path: str | None = None
    queue: str | None = None
    reader: str | None = None
    after: int | Literal["beginning", "end"] | None = None
    until: int | None = None
    rows_max: int | None = None
    partitions: int = 4
    on_trimmed: Literal["fail", "skip"] = "fail"
    kinds: frozenset[str] | None = None
    queues: frozenset[str] | None = None
    message_ids: frozenset[str] | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    columns: tuple[str, ...] | None = None
    pushdown: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOptions:
    """How to consume a queue."""

    place: ServerAddress
    queue: str
    consumer: str
    rows_max: int = 30_000
    bytes_max: int | None = None
    partitions: int = 4
    idle_ms: int | None = None
    on_released: Literal["fail", "skip"] = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class PeekOptions:
    """What to look at without taking it."""

    place: ServerAddress
    queue: str
    ids: frozenset[str] | None = None
    fairness_key: Key | None = None
    reason: str | None = None
    error: str | None = None
    partitions: int = 4
    pushdown: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """Where rows are written to."""

    place: ServerAddress
    queue: str
    sink: str | None = None
    batch: int = 0
    patience_s: float = 600.0


def queue_options(given: Mapping[str, str]) -> QueueOptions:
    """Read the options of a queue.

    Raises:
        InvalidArgument: one is missing, not known, or no value for its name.
    """
    options = _read(given, QueueOptions, _QUEUE, needed=("place", "queue", "consumer"))
    if options.rows_max > CLAIM_MAX:
        raise InvalidArgument(f"Option rows_max is {options.rows_max}; at most {CLAIM_MAX} messages fit into a batch.")
    return options


def peek_options(given: Mapping[str, str]) -> PeekOptions:
    """Read the options of a look at messages; for dead letters, of the queue they came from or of the DLQ itself.

    Raises:
        InvalidArgument: one is missing, not known, or no value for its name.
    """
    options = _read(given, PeekOptions, _PEEK, needed=("place", "queue"))
    if kind_of(given) == "dead_letters" and not is_dlq(options.queue):
        return replace(options, queue=dlq_of(options.queue))
    return options


def sink_options(given: Mapping[str, str], *, is_stream: bool) -> SinkOptions:
    """Read the options of a sink.

    Raises:
        InvalidArgument: one is missing, not known, or no value for its name.
    """
    if KIND in given and given[KIND] != "queue":
        raise InvalidArgument(f"Remove the option kind ({given[KIND]!r:.100}): rows are always written to a queue.")
    options = _read(given, SinkOptions, _SINK, needed=("place", "queue"))
    if is_stream and "batch" in given:
        raise InvalidArgument("Option batch is not allowed for streams; Spark numbers their batches.")
    if not is_stream and "batch" in given and options.sink is None:
        raise InvalidArgument("Option batch needs the option sink: together they identify what is written once.")
    return options


def journal_options(given: Mapping[str, str]) -> JournalOptions:
    """Read the options of a journal.

    Raises:
        InvalidArgument: one is not known, is no value for its name, or does not go with another.
    """
    options = _read(given, JournalOptions, _JOURNAL)
    if (options.place is None) == (options.path is None):
        raise InvalidArgument("Set either the option server, or the option path to a folder with exported segments.")
    if options.path is not None and options.reader is not None:
        raise InvalidArgument("Option reader is not allowed with path; exported segments need no reader.")
    if options.path is not None and options.queue is not None:
        raise InvalidArgument("Option queue is not allowed with path; a folder holds one journal.")
    if options.after == END and options.reader is None:
        raise InvalidArgument("Option after=end needs the option reader, which stores the position.")
    return options


def kind_of(given: Mapping[str, str]) -> str:
    """Return what is to be read.

    Raises:
        InvalidArgument: nothing we know.
    """
    kind = given.get(KIND)
    if kind not in READ_KINDS:
        raise InvalidArgument(f"Invalid option kind {kind!r:.100}. Use one of {_listed(READ_KINDS)}.")
    return kind


# ---------------------------------------------------------------------------------------------------------- reading


def _read(
    given: Mapping[str, str], shape: Callable[..., T], known: Mapping[str, _Read], *, needed: tuple[str, ...] = ()
) -> T:
    values: dict[str, Any] = {}
    place: dict[str, Any] = {}
    for spelt, text in given.items():
        name = spelt.lower()
        if name == KIND or name in _OF_SPARK:
            continue
        if name in _PLACE:
            place[name] = _PLACE[name](name, text)
        elif name in known:
            values[name] = known[name](name, text)
        else:
            raise InvalidArgument(_unknown(name, [*known, *_PLACE]))
    if place:
        if "server" not in place:
            raise InvalidArgument(f"Option {next(iter(place))} needs the option server.")
        values["place"] = ServerAddress(**place)
    for name in needed:
        if name not in values:
            raise InvalidArgument(f"Option {'server' if name == 'place' else name} is missing.")
    return shape(**values)


def _unknown(name: str, known: list[str]) -> str:
    close = get_close_matches(_OTHER_WORDS.get(name, name), known, n=1)
    hint = f" Did you mean {close[0]}?" if close else f" Known options: {_listed(known)}."
    return f"Unknown option {name!r:.100}.{hint}"


_OTHER_WORDS: Final = {"url": "server", "key": "api_key", "host": "server", "token": "api_key", "maxrows": "rows_max"}


def _listed(names: Any) -> str:  # noqa: ANN401 - any texts
    return ", ".join(names)


def _text(name: str, text: str) -> str:
    if not text:
        raise InvalidArgument(f"Option {name} is empty.")
    return text


def _servers(name: str, text: str) -> str:
    addresses_of(_text(name, text))
    return text


def _whole(name: str, text: str, *, least: int = 0) -> int:
    if not (text.isdecimal() and text.isascii() and int(text) >= least):
        raise InvalidArgument(f"Option {name} must be a whole number of at least {least}, not {text!r:.100}.")
    return int(text)


def _count(name: str, text: str) -> int:
    return _whole(name, text, least=1)


def _seconds(name: str, text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0
    if not 0 < seconds < float("inf"):
        raise InvalidArgument(f"Option {name} must be a number of seconds, not {text!r:.100}.")
    return seconds


def _truth(name: str, text: str) -> bool:
    return _one_of("true", "false")(name, text.lower()) == "true"


def _one_of(*words: str) -> Callable[[str, str], str]:
    def read(name: str, text: str) -> str:
        if text not in words:
            raise InvalidArgument(f"Option {name} must be {' or '.join(words)}, not {text!r:.100}.")
        return text

    return read


def _key(name: str, text: str) -> Key:
    if not text.startswith("["):
        return _text(name, text)
    try:
        return msgspec.json.decode(text, type=tuple[str, ...])
    except msgspec.DecodeError as error:
        raise InvalidArgument(f'Option {name} must be a name, or a path as JSON such as ["acme", "mobile"].') from error


def _after(name: str, text: str) -> int | str:
    return text if text in (BEGINNING, END) else _whole(name, text)


def _set(known: tuple[str, ...] | None = None) -> Callable[[str, str], frozenset[str]]:
    def read(name: str, text: str) -> frozenset[str]:
        texts = frozenset(part.strip() for part in _text(name, text).split(","))
        for part in sorted(texts):
            if known is not None and part not in known:
                raise InvalidArgument(f"Option {name} contains {part!r:.100}. Use only {_listed(known)}.")
        return texts

    return read


def _columns(name: str, text: str) -> tuple[str, ...]:
    wanted = _set(NAMES)(name, text)
    return tuple(column for column in NAMES if column in wanted)


_PLACE: Final[Mapping[str, _Read]] = {
    "server": _servers,
    "api_key": _text,
    "ca": _text,
    "certificate": _text,
    "certificate_key": _text,
    "timeout_s": _seconds,
}
_QUEUE: Final[Mapping[str, _Read]] = {
    "queue": _text,
    "consumer": _text,
    "rows_max": _count,
    "bytes_max": _count,
    "partitions": _count,
    "idle_ms": _count,
    "on_released": _one_of("fail", "skip"),
}
_SINK: Final[Mapping[str, _Read]] = {"queue": _text, "sink": _text, "batch": _whole, "patience_s": _seconds}
_PEEK: Final[Mapping[str, _Read]] = {
    "queue": _text,
    "ids": _set(),
    "fairness_key": _key,
    "reason": _text,
    "error": _text,
    "partitions": _count,
    "pushdown": _truth,
}
_JOURNAL: Final[Mapping[str, _Read]] = {
    "path": _text,
    "queue": _text,
    "reader": _text,
    "after": _after,
    "until": _whole,
    "rows_max": _count,
    "partitions": _count,
    "on_trimmed": _one_of("fail", "skip"),
    "kinds": _set(KINDS),
    "queues": _set(),
    "message_ids": _set(),
    "since_ms": _whole,
    "until_ms": _whole,
    "columns": _columns,
    "pushdown": _truth,
}
