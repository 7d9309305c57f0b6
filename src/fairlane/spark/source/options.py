"""The options of ``format("fairlane")``: read once on the driver, and refused there if they make no sense."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from difflib import get_close_matches
from typing import Any, Final, Literal, TypeVar

import msgspec

from fairlane.client.cluster_transport import addresses_of
from fairlane.errors import InvalidArgument
from fairlane.journal.events import KINDS
from fairlane.journal.identity import is_journal_id
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


def _journal_id(name: str, text: str) -> str:
    if not is_journal_id(text):
        raise InvalidArgument(f"Option {name} must be the id of a journal, 16 hexadecimal digits, not {text!r:.100}.")
    return text


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


def option(read: _Read, default: Any = MISSING) -> Any:  # noqa: ANN401 - as dataclasses.field
    """Return a field that is an option: ``read`` converts its text. Without a default it is required."""
    return field(default=default, metadata={"read": read})


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalOptions:
    """What to read of a journal; see ``docs/reference/spark.md``."""

    place: ServerAddress | None = None
    path: str | None = option(_text, None)
    queue: str | None = option(_text, None)
    reader: str | None = option(_text, None)
    after: int | Literal["beginning", "end"] | None = option(_after, None)
    until: int | None = option(_whole, None)
    rows_max: int | None = option(_count, None)
    partitions: int = option(_count, 4)
    on_trimmed: Literal["fail", "skip"] = option(_one_of("fail", "skip"), "fail")
    kinds: frozenset[str] | None = option(_set(KINDS), None)
    queues: frozenset[str] | None = option(_set(), None)
    message_ids: frozenset[str] | None = option(_set(), None)
    since_ms: int | None = option(_whole, None)
    until_ms: int | None = option(_whole, None)
    columns: tuple[str, ...] | None = option(_columns, None)
    pushdown: bool = option(_truth, default=False)
    journal_id: str | None = option(_journal_id, None)
    new_epoch: bool = option(_truth, default=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOptions:
    """How to consume a queue."""

    place: ServerAddress
    queue: str = option(_text)
    consumer: str = option(_text)
    rows_max: int = option(_count, 30_000)
    bytes_max: int | None = option(_count, None)
    partitions: int = option(_count, 4)
    idle_ms: int | None = option(_count, None)
    on_released: Literal["fail", "skip"] = option(_one_of("fail", "skip"), "fail")


@dataclass(frozen=True, slots=True, kw_only=True)
class PeekOptions:
    """What to look at without taking it."""

    place: ServerAddress
    queue: str = option(_text)
    ids: frozenset[str] | None = option(_set(), None)
    fairness_key: str | tuple[str, ...] | None = option(_key, None)
    reason: str | None = option(_text, None)
    error: str | None = option(_text, None)
    partitions: int = option(_count, 4)
    pushdown: bool = option(_truth, default=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """Where rows are written to."""

    place: ServerAddress
    queue: str = option(_text)
    sink: str | None = option(_text, None)
    batch: int = option(_whole, 0)
    patience_s: float = option(_seconds, 600.0)


_PLACE: Final[Mapping[str, _Read]] = {
    "server": _servers,
    **dict.fromkeys(("api_key", "ca", "certificate", "certificate_key"), _text),
    "timeout_s": _seconds,
}
"""The options that make up ``place``."""


def queue_options(given: Mapping[str, str]) -> QueueOptions:
    """Read the options of a queue; see ``_read``."""
    options = _read(given, QueueOptions)
    if options.rows_max > CLAIM_MAX:
        raise InvalidArgument(f"Option rows_max is {options.rows_max}; at most {CLAIM_MAX} messages fit into a batch.")
    return options


def peek_options(given: Mapping[str, str]) -> PeekOptions:
    """Read the options of a look at messages; for dead letters, of the queue they came from or of the DLQ itself."""
    options = _read(given, PeekOptions)
    if kind_of(given) == "dead_letters" and not is_dlq(options.queue):
        return replace(options, queue=dlq_of(options.queue))
    return options


def sink_options(given: Mapping[str, str], *, is_stream: bool) -> SinkOptions:
    """Read the options of a sink; see ``_read``."""
    if KIND in given and given[KIND] != "queue":
        raise InvalidArgument(f"Remove the option kind ({given[KIND]!r:.100}): rows are always written to a queue.")
    options = _read(given, SinkOptions)
    if is_stream and "batch" in given:
        raise InvalidArgument("Option batch is not allowed for streams; Spark numbers their batches.")
    if not is_stream and "batch" in given and options.sink is None:
        raise InvalidArgument("Option batch needs the option sink: together they identify what is written once.")
    return options


def journal_options(given: Mapping[str, str]) -> JournalOptions:
    """Read the options of a journal; see ``_read``."""
    options = _read(given, JournalOptions)
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
    """Return what is to be read. Raises InvalidArgument for a kind that does not exist."""
    kind = given.get(KIND)
    if kind not in READ_KINDS:
        raise InvalidArgument(f"Invalid option kind {kind!r:.100}. Use one of {_listed(READ_KINDS)}.")
    return kind


def _read(given: Mapping[str, str], shape: type[T]) -> T:
    """Read options. Raises InvalidArgument if one is missing, not known, or no value for its name."""
    known = {each.name: each for each in fields(shape)}  # type: ignore[arg-type]  # it is a dataclass
    values: dict[str, Any] = {}
    place: dict[str, Any] = {}
    for spelt, text in given.items():
        name = spelt.lower()
        if name == KIND or name in _OF_SPARK:
            continue
        if name in _PLACE:
            place[name] = _PLACE[name](name, text)
        elif name in known and name != "place":
            values[name] = known[name].metadata["read"](name, text)
        else:
            raise InvalidArgument(_unknown(name, [*(name for name in known if name != "place"), *_PLACE]))
    if place:
        if "server" not in place:
            raise InvalidArgument(f"Option {next(iter(place))} needs the option server.")
        values["place"] = ServerAddress(**place)
    for name, each in known.items():
        if name not in values and each.default is MISSING:
            raise InvalidArgument(f"Option {'server' if name == 'place' else name} is missing.")
    return shape(**values)


def _unknown(name: str, known: list[str]) -> str:
    close = get_close_matches(_OTHER_WORDS.get(name, name), known, n=1)
    hint = f" Did you mean {close[0]}?" if close else f" Known options: {_listed(known)}."
    return f"Unknown option {name!r:.100}.{hint}"


_OTHER_WORDS: Final = {"url": "server", "key": "api_key", "host": "server", "token": "api_key", "maxrows": "rows_max"}


def _listed(names: Any) -> str:  # noqa: ANN401 - any texts
    return ", ".join(names)
