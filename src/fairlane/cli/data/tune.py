"""The command ``tune``."""

from __future__ import annotations

from threading import Event
from typing import TYPE_CHECKING

import click

from fairlane.cli.data.advise import TARGET, value_text
from fairlane.cli.data.whatif import SWEEP
from fairlane.cli.errors import NOTHING, Quit
from fairlane.cli.formatting import duration
from fairlane.cli.interaction import progress, stoppable
from fairlane.cli.output import Table
from fairlane.cli.parameters import Duration
from fairlane.cli.session import Session, pass_session

if TYPE_CHECKING:
    from fairlane.spark.tune.rounds import Round
    from fairlane.spark.tune.tuner import Tuner


class Percentage(click.ParamType):  # type: ignore[type-arg] # older versions of click are not generic
    """A percentage such as ``10%``."""

    name = "percentage"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the percentage as a part of 1."""
        if isinstance(value, float):
            return value
        try:
            part = float(str(value).removesuffix("%")) / 100
        except ValueError:
            part = -1.0
        if not str(value).endswith("%") or part < 0:
            self.fail(f"Invalid percentage {str(value)!r}; write a number and a percent sign, such as 10%.", param, ctx)
        return part


@click.command(name="tune")
@click.argument("queue")
@TARGET
@click.option(
    "--window",
    "window_ms",
    type=Duration(),
    default="5m",
    show_default=True,
    help="How much traffic a change is tried on, and how long it is watched.",
)
@click.option(
    "--worse-max",
    type=Percentage(),
    default="10%",
    show_default=True,
    help="By how much the waits of a key that no target names may increase.",
)
@click.option(
    "--expires",
    "keep_ms",
    type=Duration(),
    default="1d",
    show_default=True,
    help="How long a kept change lasts; it is extended while this command runs and the targets are met.",
)
@SWEEP
@click.option("--dry-run", is_flag=True, help="Propose once, and apply nothing.")
@click.option("--once", is_flag=True, help="End after one round; otherwise go on until interrupted.")
@pass_session
def tune_command(
    session: Session,
    *,
    queue: str,
    targets: tuple[str, ...],
    window_ms: int,
    worse_max: float,
    keep_ms: int,
    sweeps: tuple[str, ...],
    dry_run: bool,
    once: bool,
) -> None:
    """Tune a queue of a running server until targets are met, without harm to other keys.

    Each round tries changes of weights, caps and rates on the last window of traffic, applies the smallest one that
    meets the targets, watches it for one window, and keeps it or rolls it back. Every change has an expiry in the
    broker, so an interrupted or killed command leaves no change behind. Exit code 4 if, in the end, the targets are not
    met.
    """
    # Only here: this needs packages that other commands do without.
    from fairlane.spark.tune.rounds import TuneOptions
    from fairlane.spark.tune.tuner import Tuner
    from fairlane.spark.whatif.targets import target_of

    if session.endpoint.is_embedded:
        raise click.UsageError("tune needs a running server; leave out --data.")
    options = TuneOptions(
        queue=queue,
        targets=tuple(target_of(text) for text in targets),
        window_ms=window_ms,
        worse_max=worse_max,
        keep_ms=keep_ms,
        sweeps=sweeps,
        is_dry_run=dry_run,
    )
    rounds: list[Round] = []
    with session.broker() as broker, stoppable(), progress("settings") as bar:
        tuner = Tuner(broker, options, wait=_wait, tell=_tell, progress=bar.set)
        try:
            while not rounds or not (once or dry_run):
                rounds.append(tuner.round())
                _tell(summary(rounds[-1]))
        except KeyboardInterrupt:
            _tell(interrupted(tuner))
    session.answer(rounds, tables(rounds[-1]) if rounds else [])
    if not rounds or not (rounds[-1].is_met or (dry_run and rounds[-1].changes)):
        raise Quit(NOTHING)


def _wait(span_ms: int) -> None:
    Event().wait(span_ms / 1000)


def _tell(text: str) -> None:
    click.echo(text, err=True)


def summary(done: Round) -> str:
    """Return what came of a round, in one line."""
    changes = ", ".join(f"{key}={'none' if value is None else value}" for key, value in sorted(done.changes.items()))
    return f"round {done.number}: {done.outcome.replace('_', ' ')}{f' {changes}' if changes else ''}: {done.why}"


def interrupted(tuner: Tuner) -> str:
    """Return what an interrupt leaves behind."""
    if tuner.applied is None:
        return "Interrupted. No change is on trial; kept changes expire as `fairlane config list` shows."
    keys = ", ".join(sorted(tuner.applied.values))
    return f"Interrupted. {keys} stays on trial until it expires; then the broker restores the previous value."


def tables(done: Round) -> list[Table]:
    """Return a round as tables: its targets, and facts."""
    columns = ["target", "before", "forecast", "after"]
    readings = (done.before, done.forecast, done.after)
    rows = [
        [text, *("-" if values is None else value_text(text, values[at]) for values in readings)]
        for at, text in enumerate(done.targets)
    ]
    facts = [["outcome", f"{done.outcome.replace('_', ' ')}: {done.why}"]]
    facts += [["change", f"{key} = {'none' if value is None else value}"] for key, value in done.changes.items()]
    if done.error is not None:
        facts.append(["error of the model", f"{done.error:.0%}"])
    if done.worse_key is not None:
        facts.append(["worst other key", f"{done.worse_key}: {done.worse:.0%} worse"])
    found = [Table(columns, rows, numbers=frozenset(columns[1:])), Table([], facts)]
    return [*found, _costs(done)] if done.costs else found


def _costs(done: Round) -> Table:
    rows = [
        [one.key, str(one.messages), duration(round(one.work_ms)), f"{one.declared:.1f}", str(one.cost)]
        for one in done.costs
    ]
    columns = ["key", "messages", "work on each", "declared cost", "cost by work"]
    title = "Costs do not fit the work. No setting changes them: declare them at enqueue, or report them with each ack"
    return Table(columns, rows, title=title, numbers=frozenset(columns[1:]))
