"""The command ``advise``."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fairlane.cli.data.spark import MASTER, on_spark
from fairlane.cli.data.whatif import FROM, JOURNAL, SWEEP, TO, span_of, spark_of
from fairlane.cli.errors import NOTHING, Quit
from fairlane.cli.formatting import duration
from fairlane.cli.interaction import progress
from fairlane.cli.output import Table
from fairlane.cli.session import Session, pass_session

if TYPE_CHECKING:
    from fairlane.spark.whatif.advice import Advice, Tried

_SHOWN = 15


@click.command(name="advise")
@JOURNAL
@click.option("--queue", required=True, help="The queue.")
@click.option(
    "--target",
    "targets",
    multiple=True,
    required=True,
    metavar="MEASURE:KEY<=BOUND",
    help="A target, such as wait_p99:acme<=1s; repeatable.",
)
@SWEEP
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
    first: datetime | None,
    last: datetime | None,
    master: str | None,
) -> None:
    """Find the settings that would have met targets at the least cost to others, by trying many on a journal.

    It changes nothing, and prints the commands that apply the proposal. Exit code 4 if no setting meets the targets.
    """
    # Only here: this needs packages that other commands do without.
    from fairlane.spark.whatif.advice import advise, target_of
    from fairlane.spark.whatif.comparison import Journal

    wanted = [target_of(text) for text in targets]
    known = Journal(journal, queues=(queue,))
    spark, span = spark_of(master), span_of(first, last)
    with progress("settings") as bar:
        advice = on_spark(
            spark, partial(advise, known, wanted, sweeps=sweeps, span=span, spark=spark, progress=bar.set)
        )
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
    if advice.proposal is None:
        return [*tables, Table([], [["proposal", "none: no setting meets the targets"]])]
    if not advice.commands:
        return [*tables, Table([], [["proposal", "no change: the targets are met already"]])]
    told = [["proposal", advice.proposal.name], *[["to apply", command] for command in advice.commands]]
    return [*tables, Table([], told)]


def _row(one: Tried, targets: list[str]) -> list[str]:
    values = [_value(target, value) for target, value in zip(targets, one.values, strict=True)]
    return [one.name, "yes" if one.is_met else "no", *values, f"+{duration(round(one.cost_ms))}", f"{one.left:+d}"]


def _value(target: str, value: float) -> str:
    if target.startswith("share"):
        return f"{value:.1%}"
    return str(int(value)) if target.startswith("misses") else duration(round(value))
