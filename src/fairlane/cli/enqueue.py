"""The command ``enqueue``."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import click

from fairlane.cli.door import Door
from fairlane.cli.durations import DURATION
from fairlane.cli.errors import REFUSED, UNAVAILABLE, Stop, exit_code_of, facts_of
from fairlane.cli.formatting import printable
from fairlane.cli.message_lines import Numbered, from_json_lines, from_lines, lines_of, message_of
from fairlane.cli.output import answer
from fairlane.cli.parameters import KEY, PAIR
from fairlane.cli.progress import progress
from fairlane.cli.queue_names import QUEUE
from fairlane.cli.session import Session, pass_session
from fairlane.cli.tables import messages
from fairlane.errors import FairlaneError, InvalidArgument
from fairlane.model.message import PRIORITY_NAMES, NewMessage

_BATCH = 500
_BATCH_BYTES = 1024 * 1024
_FAULTS_TOLD = 10


@click.command(name="enqueue")
@QUEUE
@click.argument("payload", required=False)
@click.option("--file", "path", metavar="FILE", help="Take the payload, or with --lines and --jsonl many, from a file.")
@click.option("--lines", "--stdin-lines", "is_lines", is_flag=True, help="Each line is the payload of a message.")
@click.option("--jsonl", "is_jsonl", is_flag=True, help="Each line is a message as JSON: payload, headers, and so on.")
@click.option("--header", "headers", multiple=True, type=PAIR, help="A header; may be repeated.")
@click.option("--key", type=KEY, help="Who it is for: acme, or a path such as acme/mobile.")
@click.option("--weight", type=int, help="The share of its key relative to others.")
@click.option("--cost", type=int, help="What serving it takes from its key's share.")
@click.option("--priority", type=click.Choice(PRIORITY_NAMES), help="Its rank among the messages of its key.")
@click.option("--throttle", "throttles", multiple=True, metavar="NAME", help="A throttle; may be repeated.")
@click.option("--delay", type=DURATION, help="Not before so long from now.")
@click.option("--deadline", type=DURATION, help="Not after so long from now.")
@click.option("--dedup-id", help="A second message with the same one is not enqueued.")
@click.option("--dedup-prefix", help="With --lines and --jsonl: dedup ids PREFIX:LINE, so that all can be repeated.")
@click.option("--correlation-id", help="Travels with the message.")
@pass_session
def enqueue_command(session: Session, /, queue: str, payload: str | None, **options: Any) -> None:  # noqa: ANN401 - click's
    """Enqueue a message, or many from a file or standard input.

    Without a PAYLOAD it is read from standard input. With --jsonl a line has the fields of a message: payload (text,
    or any JSON), payload_base64, headers, fairness_key, weight, cost, priority, throttles, delay, deadline, dedup_id,
    correlation_id. What a line does not say is taken from the options.
    """
    is_many = options["is_lines"] or options["is_jsonl"]
    _check(payload, options, is_many=is_many)
    base = message_of(b"", options)
    with _source(payload, options["path"], is_many=is_many) as stream:
        if not is_many:
            _enqueue_one(session, queue, message_of(stream.read(), options))
            return
        read = from_json_lines if options["is_jsonl"] else from_lines
        with session.door() as door, progress(f"To {queue}") as bar:
            loading = Loading(door, queue, total=_lines_in(options["path"]), show=bar.set)
            loading.run(read(lines_of(stream), base, dedup_prefix=options["dedup_prefix"]))
    loading.tell(is_json=session.is_json)


def _check(payload: str | None, options: dict[str, Any], *, is_many: bool) -> None:
    if options["is_lines"] and options["is_jsonl"]:
        raise click.UsageError("A line is a payload or JSON: say --lines or --jsonl, not both.")
    if payload is not None and (options["path"] is not None or is_many):
        raise click.UsageError("Say a PAYLOAD, or where to read from, not both.")
    if is_many and options["dedup_id"] is not None:
        raise click.UsageError("One --dedup-id for many would let only the first in. Say --dedup-prefix.")
    if not is_many and options["dedup_prefix"] is not None:
        raise click.UsageError("--dedup-prefix is for --lines and --jsonl. Say --dedup-id.")
    if payload is None and options["path"] in (None, "-") and sys.stdin.isatty():
        raise click.UsageError("Say a PAYLOAD or --file, or pipe something in.")


@contextmanager
def _source(payload: str | None, path: str | None, *, is_many: bool) -> Iterator[io.BufferedIOBase]:
    if payload is not None and not is_many and payload != "-":
        yield io.BytesIO(payload.encode(errors="surrogateescape"))
    elif path in (None, "-"):
        yield cast("io.BufferedIOBase", sys.stdin.buffer)
    else:
        with Path(str(path)).open("rb") as stream:
            yield stream


def _lines_in(path: str | None) -> int | None:
    """Return how many lines a file has, None for standard input."""
    if path in (None, "-") or not Path(str(path)).is_file():
        return None
    with Path(str(path)).open("rb") as stream:
        return sum(1 for _ in stream)


def _enqueue_one(session: Session, queue: str, message: NewMessage) -> None:
    with session.door() as door:
        message_id = door.enqueue(queue, message)
    answer({"id": message_id, "queue": queue}, message_id, is_json=session.is_json)


@dataclass(slots=True)
class Loading:
    """Many messages on their way to a queue."""

    door: Door
    queue: str
    total: int | None
    show: Callable[[int, int | None], None]
    enqueued: int = 0
    failed: int = 0
    line: int = 0
    exit_code: int = 0
    faults: list[dict[str, object]] = field(default_factory=list)

    def run(self, numbered: Iterator[Numbered | None]) -> None:
        """Enqueue all of them, in batches; those that are refused are counted and told.

        Where the next may be long in coming, those that are here are not kept waiting.
        """
        batch: list[tuple[int, NewMessage]] = []
        held = 0
        try:
            for entry in numbered:
                number, message = entry if entry is not None else (0, None)
                if isinstance(message, InvalidArgument):
                    self._note(number, message)
                elif message is not None:
                    batch.append((number, message))
                    held += len(message.payload)
                if batch and (entry is None or len(batch) >= _BATCH or held >= _BATCH_BYTES):
                    self._send(batch)
                    batch, held = [], 0
            if batch:
                self._send(batch)
        except BaseException:
            click.echo(f"{messages(self.enqueued)} enqueued, up to line {self.line}; then it ended.", err=True)
            raise

    def _send(self, batch: list[tuple[int, NewMessage]]) -> None:
        results = self.door.enqueue_many(self.queue, [message for _, message in batch])
        for (number, _), result in zip(batch, results, strict=True):
            if isinstance(result, FairlaneError):
                self._note(number, result)
            else:
                self.enqueued += 1
        self.line = batch[-1][0]
        self.show(self.enqueued + self.failed, self.total)

    def _note(self, number: int, error: FairlaneError) -> None:
        self.failed += 1
        if self.exit_code != UNAVAILABLE:
            self.exit_code = exit_code_of(error) or REFUSED
        if len(self.faults) < _FAULTS_TOLD:
            self.faults.append({"line": number, **facts_of(error)})

    def tell(self, *, is_json: bool) -> None:
        """Say what came of it.

        Raises:
            Stop: some were refused.
        """
        said = {"queue": self.queue, "enqueued": self.enqueued, "failed": self.failed, "errors": self.faults}
        if not is_json:
            for fault in self.faults:
                cause = printable(f"line {fault['line']}: {fault['cause']}")
                click.echo(f"error[{fault['code']}]: {cause}\nremedy: {fault['remedy']}", err=True)
        refused = f", {self.failed} refused" if self.failed else ""
        answer(said, f"{messages(self.enqueued)} enqueued{refused}.", is_json=is_json)
        if self.failed:
            raise Stop(self.exit_code)
