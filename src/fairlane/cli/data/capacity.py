"""The command ``capacity``."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fairlane.cli.data.advise import QUEUE, TARGET, value_text
from fairlane.cli.data.spark import MASTER, on_spark
from fairlane.cli.data.whatif import ASSUME, FROM, JOURNAL, TO, error_row, span_of, spark_of
from fairlane.cli.errors import NOTHING, Quit
from fairlane.cli.interaction import progress
from fairlane.cli.output import Table
from fairlane.cli.session import Session, pass_session

if TYPE_CHECKING:
    from fairlane.spark.whatif.capacity import Capacity


@click.command(name="capacity")
@JOURNAL
@QUEUE
@TARGET
@ASSUME
@click.option(
    "--most", type=click.IntRange(1, 10_000), help="Most consumers to try. Default: 64 times those of the journal."
)
@FROM
@TO
@MASTER
@pass_session
def capacity_command(
    session: Session,
    *,
    journal: Path,
    queue: str,
    targets: tuple[str, ...],
    assume: tuple[str, ...],
    most: int | None,
    first: datetime | None,
    last: datetime | None,
    master: str | None,
) -> None:
    """Find the fewest consumers that would have met targets, by replaying a journal with more and fewer.

    With --output json the result has what an autoscaler needs: the number of consumers, and how many waiting messages
    to allow for each. Exit code 4 if no number meets the targets. If the model is more than 20 % off on the journal, it
    gives no answer and ends with the error model_inaccurate.
    """
    # Only here: this needs packages that other commands do without.
    from fairlane.spark.whatif.capacity import find_capacity
    from fairlane.spark.whatif.comparison import Journal
    from fairlane.spark.whatif.targets import target_of

    wanted = [target_of(text) for text in targets]
    known = Journal(journal, queues=(queue,))
    spark, span = spark_of(master), span_of(first, last)
    with progress("numbers of consumers") as bar:
        search = partial(find_capacity, known, wanted, assume=assume, most=most, span=span, spark=spark)
        found = on_spark(spark, partial(search, progress=bar.set))
    session.answer(found, _tables(found))
    if found.consumers is None:
        raise Quit(NOTHING)


def _tables(found: Capacity) -> list[Table]:
    columns = ["consumers", "met", *found.targets]
    rows = [
        [
            str(one.consumers),
            "yes" if one.is_met else "no",
            *(value_text(target, value) for target, value in zip(found.targets, one.values, strict=True)),
        ]
        for one in found.tried
    ]
    facts = [["assumed", text] for text in found.assumed]
    facts += [error_row(found.error), ["consumers in the journal", str(found.consumers_now)]]
    facts.append(["fewest consumers", "none that was tried" if found.consumers is None else str(found.consumers)])
    if found.waiting_per_consumer is not None:
        facts.append(["waiting messages to allow for each", str(found.waiting_per_consumer)])
    numbers = frozenset({"consumers", *found.targets})
    return [Table(columns, rows, title=f"Queue {found.queue}", numbers=numbers), Table([], facts)]
