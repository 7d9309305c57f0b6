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

from fairlane.cli.errors import REFUSED, UNAVAILABLE, Quit, exit_code_of, facts_of
from fairlane.cli.formatting import message_count, printable
from fairlane.cli.interaction import progress
from fairlane.cli.message_lines import Numbered, from_lines, lines_of, message_of
from fairlane.cli.parameters import DURATION, KEY, PAIR, QUEUE
from fairlane.cli.payload_streams import enqueue_stream
from fairlane.cli.session import Broker, Session, pass_session
from fairlane.errors import FairlaneError, InvalidArgument
from fairlane.model.message import PRIORITY_NAMES, NewMessage

_BATCH = 500
_BATCH_BYTES = 1024 * 1024
_ERRORS_SHOWN = 10


@click.command(name="enqueue")
@QUEUE
@click.argument("payload", required=False)
@click.option("--file", "path", metavar="FILE", help="Read the payload from a file; with --lines or --jsonl, many.")
@click.option("--lines", "--stdin-lines", "is_lines", is_flag=True, help="Enqueue each line as a payload.")
@click.option("--jsonl", "is_jsonl", is_flag=True, help="Enqueue each line as a message in JSON; see above.")
@click.option("--header", "headers", multiple=True, type=PAIR, help="A header; repeatable.")
@click.option("--key", type=KEY, help="Fairness key: acme, or a path such as acme/mobile.")
@click.option("--weight", type=int, help="Weight of the fairness key.")
@click.option("--cost", type=int, help="What the message takes from its key's share.")
@click.option("--priority", type=click.Choice(PRIORITY_NAMES), help="Priority among the messages of its key.")
@click.option("--throttle", "throttles", multiple=True, metavar="NAME", help="A throttle; repeatable.")
@click.option("--delay", type=DURATION, help="Time until the message can be leased.")
@click.option("--deadline", type=DURATION, help="Time after which the message is no longer delivered.")
@click.option(
    "--max-attempts", type=int, help="Failed attempts before the message becomes a dead letter. Default: the queue's."
)
@click.option(
    "--visibility-timeout", type=DURATION, help="How long a lease on the message lasts. Default: the queue's."
)
@click.option("--result-ttl", type=DURATION, help="How long its result and its end are kept. Default: the queue's.")
@click.option(
    "--order-key", help="With strict order: messages of a fairness key with the same order key stay in order."
)
@click.option("--unique-key", help="Unique key: only one message of a tenant can have it at a time, until it is done.")
@click.option("--dedup-id", help="Name of the message; a second message with the same name is not enqueued.")
@click.option("--dedup-prefix", help="With --lines or --jsonl: use PREFIX:LINE as dedup ids, to make reruns safe.")
@click.option("--correlation-id", help="Id that follows the message through logs, traces and the journal.")
@pass_session
def enqueue_command(session: Session, /, queue: str, payload: str | None, **options: Any) -> None:  # noqa: ANN401 - click's options
    """Enqueue a message, or many from a file or standard input.

    Without PAYLOAD and --file, the payload is read from standard input. It may have any size: a large payload is
    uploaded in pieces, and the message enters the queue once all of it is stored.

    With --jsonl a line is a JSON object with the fields payload (text or any JSON value) or payload_base64, headers,
    fairness_key, weight, cost, priority, throttles, delay, deadline, dedup_id, correlation_id, max_attempts,
    visibility_timeout, result_ttl, order_key and unique_key. The options of the command are the defaults for fields
    that a line does not have.
    """
    is_many = options["is_lines"] or options["is_jsonl"]
    _check(payload, options, is_many=is_many)
    base = message_of(b"", options)
    with _source(payload, options["path"], is_many=is_many) as stream:
        if not is_many:
            _enqueue_one(session, queue, base, stream)
            return
        with session.broker() as broker, progress(f"Enqueueing to {queue}") as bar:
            load = BulkEnqueue(broker, queue, total=_lines_in(options["path"]), show=bar.set)
            is_json, prefix = options["is_jsonl"], options["dedup_prefix"]
            load.run(from_lines(lines_of(stream), base, is_json=is_json, dedup_prefix=prefix))
    load.report(session)


def _check(payload: str | None, options: dict[str, Any], *, is_many: bool) -> None:
    if options["is_lines"] and options["is_jsonl"]:
        raise click.UsageError("Pass either --lines or --jsonl, not both.")
    if payload is not None and (options["path"] is not None or is_many):
        raise click.UsageError("Pass either a PAYLOAD or a source (--file, --lines, --jsonl), not both.")
    if is_many and options["dedup_id"] is not None:
        raise click.UsageError("--dedup-id would enqueue only the first of many messages; pass --dedup-prefix.")
    if not is_many and options["dedup_prefix"] is not None:
        raise click.UsageError("--dedup-prefix needs --lines or --jsonl; pass --dedup-id for one message.")
    if payload is None and options["path"] in (None, "-") and sys.stdin.isatty():
        raise click.UsageError("No payload; pass a PAYLOAD or --file, or pipe one in.")


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
    """Return the number of lines in a file; None for standard input."""
    if path in (None, "-") or not Path(str(path)).is_file():
        return None
    with Path(str(path)).open("rb") as stream:
        return sum(1 for _ in stream)


def _enqueue_one(session: Session, queue: str, message: NewMessage, stream: io.BufferedIOBase) -> None:
    with session.broker() as broker:
        message_id = enqueue_stream(broker, queue, message, stream)
    session.answer({"id": message_id, "queue": queue}, message_id)


@dataclass(slots=True)
class BulkEnqueue:
    """Enqueues many messages in batches, and counts and reports the refused ones."""

    broker: Broker
    queue: str
    total: int | None
    show: Callable[[int, int | None], None]
    enqueued: int = 0
    failed: int = 0
    line: int = 0
    exit_code: int = 0
    errors: list[dict[str, object]] = field(default_factory=list)

    def run(self, numbered: Iterator[Numbered | None]) -> None:
        """Enqueue all messages; those that are refused are noted, and the others continue.

        An entry of None means that the next line may take a while, so the current batch is sent.
        """
        batch: list[tuple[int, NewMessage]] = []
        batch_bytes = 0
        try:
            for entry in numbered:
                number, message = entry if entry is not None else (0, None)
                if isinstance(message, InvalidArgument):
                    self._note(number, message)
                elif message is not None:
                    batch.append((number, message))
                    batch_bytes += len(message.payload)
                if batch and (entry is None or len(batch) >= _BATCH or batch_bytes >= _BATCH_BYTES):
                    self._send(batch)
                    batch, batch_bytes = [], 0
            if batch:
                self._send(batch)
        except BaseException:
            click.echo(f"Stopped: {message_count(self.enqueued)} enqueued, up to line {self.line}.", err=True)
            raise

    def _send(self, batch: list[tuple[int, NewMessage]]) -> None:
        results = self.broker.enqueue_many(self.queue, [message for _, message in batch])
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
        if len(self.errors) < _ERRORS_SHOWN:
            self.errors.append({"line": number, **facts_of(error)})

    def report(self, session: Session) -> None:
        """Print how many messages were enqueued, and the first errors. Raises Quit if some messages were refused."""
        facts = {"queue": self.queue, "enqueued": self.enqueued, "failed": self.failed, "errors": self.errors}
        if not session.is_json:
            for error in self.errors:
                cause = printable(f"line {error['line']}: {error['cause']}")
                click.echo(f"error[{error['code']}]: {cause}\nremedy: {error['remedy']}", err=True)
        refused = f", {self.failed} refused" if self.failed else ""
        session.answer(facts, f"Enqueued {message_count(self.enqueued)}{refused}.")
        if self.failed:
            raise Quit(self.exit_code)
