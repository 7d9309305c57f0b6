"""The command ``advise``."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fairlane.cli.data.spark import MASTER, on_spark
from fairlane.cli.data.whatif import ASSUME, FROM, JOURNAL, SWEEP, TO, error_row, span_of, spark_of
from fairlane.cli.errors import NOTHING, Quit
from fairlane.cli.formatting import duration
from fairlane.cli.interaction import progress
from fairlane.cli.output import Table
from fairlane.cli.session import Session, pass_session

if TYPE_CHECKING:
    from fairlane.spark.whatif.advice import Advice, Tried

_SHOWN = 15
QUEUE = click.option("--queue", required=True, help="The queue.")
TARGET = click.option(
    "--target",
    "targets",
    multiple=True,
    required=True,
    metavar="MEASURE:KEY<=BOUND",
    help="A target, such as wait_p99:acme<=1s, or wait_p99:*<=1s for every key; repeatable.",
)


@click.command(name="advise")
@JOURNAL
@QUEUE
@TARGET
@SWEEP
@ASSUME
@FROM
@TO
@MASTER
@pass_session
def advise_command(
    session: Session,
    *,
    journal: Path,
    queue: str,
    targets: tuple[str, ...],
    sweeps: tuple[str, ...],
    assume: tuple[str, ...],
    first: datetime | None,
    last: datetime | None,
    master: str | None,
) -> None:
    """Find the settings that would have met targets at the least cost to others, by trying many on a journal.

    It changes nothing, and prints the commands that apply the proposal. Exit code 4 if no setting meets the targets. If
    the model is more than 20 % off on the journal, it proposes nothing and ends with the error model_inaccurate.
    """
    # Only here: this needs packages that other commands do without.
    from fairlane.spark.whatif.advice import advise
    from fairlane.spark.whatif.comparison import Journal
    from fairlane.spark.whatif.targets import target_of

    wanted = [target_of(text) for text in targets]
    known = Journal(journal, queues=(queue,))
    spark, span = spark_of(master), span_of(first, last)
    with progress("settings") as bar:
        work = partial(advise, known, wanted, sweeps=sweeps, assume=assume, span=span, spark=spark, progress=bar.set)
        advice = on_spark(spark, work)
    session.answer(advice, _tables(advice))
    if advice.proposal is None:
        raise Quit(NOTHING)


def _tables(advice: Advice) -> list[Table]:
    columns = ["setting", "met", *advice.targets, "cost to others", "left"]
    numbers = frozenset({*advice.targets, "cost to others", "left"})
    shown = f"the best {_SHOWN} of " if len(advice.tried) > _SHOWN else ""
    title = f"Queue {advice.queue}: {shown}{len(advice.tried)} settings tried"
    rows = [_row(one, advice.targets) for one in advice.tried[:_SHOWN]]
    tables = [Table(columns, rows, title=title, numbers=numbers)]
    told = [["assumed", text] for text in advice.assumed]
    told.append(error_row(advice.error))
    if advice.proposal is None:
        told.append(["proposal", "none: no setting meets the targets"])
    elif not advice.proposal.changes:
        told.append(["proposal", "no change: the targets are met already"])
    else:
        told += [["proposal", advice.proposal.name], *[["to apply", command] for command in advice.commands]]
    return [*tables, Table([], told)]


def _row(one: Tried, targets: list[str]) -> list[str]:
    values = [value_text(target, value) for target, value in zip(targets, one.values, strict=True)]
    return [one.name, "yes" if one.is_met else "no", *values, f"+{duration(round(one.cost_ms))}", f"{one.left:+d}"]


def value_text(target: str, value: float) -> str:
    """Return the value of a target's measure with its unit."""
    if target.startswith("share"):
        return f"{value:.1%}"
    return str(int(value)) if target.startswith("misses") else duration(round(value))
