"""The command ``hook test``."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import click

from fairlane.cli.errors import REFUSED, Quit, report_facts
from fairlane.cli.formatting import duration
from fairlane.cli.output import Table
from fairlane.cli.parameters import PAIR
from fairlane.cli.session import Broker, Session, pass_session
from fairlane.errors import HookInvalid
from fairlane.model.answers import EnqueueAnswer, FailureAnswer
from fairlane.model.config_scope import PUBLIC_PREFIX
from fairlane.model.message import key_text
from fairlane.model.views import HookTrial


@click.group(name="hook")
def hook_command() -> None:
    """Test Lua hooks on sample messages."""


@hook_command.command()
@click.argument("script", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE")
@click.option(
    "--hook",
    type=click.Choice(["on_enqueue", "on_failure"]),
    default="on_enqueue",
    show_default=True,
    help="Function of the script to call.",
)
@click.option("--queue", default="test", show_default=True, help="Queue of the sample; it need not exist.")
@click.option("--header", "headers", multiple=True, type=PAIR, help="Header of the sample; repeatable.")
@click.option("--payload-size", type=click.IntRange(min=0), default=0, help="Size of the sample's payload in bytes.")
@click.option("--attempts", type=click.IntRange(min=1), default=1, help="For on_failure: number of the failed attempt.")
@click.option("--error", default="", help="For on_failure: text of the error.")
@click.option("--local", "is_local", is_flag=True, help="Run the script here, without a server.")
@click.option("--config", "pairs", multiple=True, type=PAIR, help="With --local: value that the script reads.")
@pass_session
def test(session: Session, /, script: Path, **options: Any) -> None:  # noqa: ANN401 - click's options
    """Run a script on a sample message. No message is enqueued and no hook is changed."""
    if options["pairs"] and not options["is_local"]:
        raise click.UsageError("--config needs --local; on a server the script reads the server's config.")
    with _broker(session, options) as broker:
        trial = _try(broker, script.read_text(), options)
    if trial.fault is not None:
        facts = {"code": HookInvalid.code, "cause": trial.fault, "remedy": HookInvalid.remedy}
        report_facts(facts, is_json=session.is_json)
        raise Quit(REFUSED)
    session.answer(trial, [Table([], _rows(trial))])


def _broker(session: Session, options: dict[str, Any]) -> AbstractContextManager[Broker]:
    if not options["is_local"]:
        return session.broker()
    from fairlane.assembly import open_broker

    broker = open_broker(None)
    for key, value in options["pairs"]:
        broker.set_config(PUBLIC_PREFIX + key, value)
    return broker


def _try(broker: Broker, script: str, options: dict[str, Any]) -> HookTrial:
    queue, headers = options["queue"], dict(options["headers"])
    if options["hook"] == "on_enqueue":
        return broker.try_on_enqueue(queue, script, headers=headers, payload_size=options["payload_size"])
    attempts, error = options["attempts"], options["error"]
    return broker.try_on_failure(queue, script, headers=headers, attempts=attempts, error=error)


def _rows(trial: HookTrial) -> list[list[str]]:
    reply = trial.answer
    names = reply.__struct_fields__ if isinstance(reply, (EnqueueAnswer, FailureAnswer)) else ()
    values = [(name, getattr(reply, name)) for name in names]
    rows = [[name, _value(name, value)] for name, value in values if value is not None]
    return [*(rows or [["answer", "nothing"]]), ["took", f"{trial.elapsed_us} µs"]]


def _value(name: str, value: object) -> str:
    if name.endswith("_ms") and isinstance(value, int):
        return duration(value)
    if name == "fairness_key" and isinstance(value, (str, tuple)):
        return key_text(value)
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
