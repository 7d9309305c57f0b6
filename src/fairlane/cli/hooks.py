"""The commands ``hook …``."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import click

from fairlane.cli.door import Door
from fairlane.cli.durations import words
from fairlane.cli.errors import REFUSED, Stop, tell
from fairlane.cli.output import Table, answer, as_json
from fairlane.cli.parameters import PAIR, written
from fairlane.cli.session import Session, pass_session
from fairlane.errors import HookInvalid
from fairlane.model.answers import EnqueueAnswer, FailureAnswer
from fairlane.model.views import HookTrial


@click.group(name="hook")
def hook_command() -> None:
    """Try Lua hooks on samples."""


@hook_command.command()
@click.argument("script", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE")
@click.option(
    "--hook",
    type=click.Choice(["on_enqueue", "on_failure"]),
    default="on_enqueue",
    show_default=True,
    help="Which function of the script to call.",
)
@click.option("--queue", default="test", show_default=True, help="The queue the sample is for; it need not exist.")
@click.option("--header", "headers", multiple=True, type=PAIR, help="A header of the sample; may be repeated.")
@click.option("--payload-size", type=click.IntRange(min=0), default=0, help="How many bytes its payload would have.")
@click.option("--attempts", type=click.IntRange(min=1), default=1, help="For on_failure: which attempt failed.")
@click.option("--error", default="", help="For on_failure: what went wrong.")
@click.option("--local", "is_local", is_flag=True, help="Run it here, without a server.")
@click.option("--config", "pairs", multiple=True, type=PAIR, help="With --local: a config value the script can read.")
@pass_session
def test(session: Session, /, script: Path, **options: Any) -> None:  # noqa: ANN401 - click's
    """Run a script on a sample; nothing is enqueued and no hook is changed."""
    if options["pairs"] and not options["is_local"]:
        raise click.UsageError("--config is for --local; a server has its own.")
    with _door(session, options) as door:
        trial = _try(door, script.read_text(), options)
    if trial.fault is not None:
        facts = {"code": HookInvalid.code, "cause": trial.fault, "remedy": HookInvalid.remedy}
        tell(facts, is_json=session.is_json)
        raise Stop(REFUSED)
    if session.is_json:
        click.echo(as_json(trial))
        return
    answer(trial, [Table([], _rows(trial))], is_json=False)


def _door(session: Session, options: dict[str, Any]) -> AbstractContextManager[Door]:
    if not options["is_local"]:
        return session.door()
    from fairlane.assembly import open_broker

    broker = open_broker(None)
    for key, value in options["pairs"]:
        broker.set_config(key, value)
    return broker


def _try(door: Door, script: str, options: dict[str, Any]) -> HookTrial:
    queue, headers = options["queue"], dict(options["headers"])
    if options["hook"] == "on_enqueue":
        return door.try_on_enqueue(queue, script, headers=headers, payload_size=options["payload_size"])
    attempts, error = options["attempts"], options["error"]
    return door.try_on_failure(queue, script, headers=headers, attempts=attempts, error=error)


def _rows(trial: HookTrial) -> list[list[str]]:
    told = trial.answer
    names = told.__struct_fields__ if isinstance(told, (EnqueueAnswer, FailureAnswer)) else ()
    said = [(name, getattr(told, name)) for name in names]
    rows = [[name, _value(name, value)] for name, value in said if value is not None]
    return [*(rows or [["answer", "nothing"]]), ["took", f"{trial.elapsed_us} µs"]]


def _value(name: str, value: object) -> str:
    if name.endswith("_ms") and isinstance(value, int):
        return words(value)
    if name == "fairness_key" and isinstance(value, (str, tuple)):
        return written(value)
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
