"""An application that writes orders and their messages in transactions, and gives some of them up: ``URL FIRST``.

Each order has a number of its own. The even ones commit together with their message; the odd ones write theirs and roll
back. The program runs until it is killed.
"""

from __future__ import annotations

import itertools
import sys

import psycopg

from fairlane.outbox import enqueue


def main(url: str, first: int) -> None:
    """Write orders until the process is killed."""
    with psycopg.connect(url) as connection:
        for number in itertools.count(first):
            connection.execute("INSERT INTO orders (id) VALUES (%s)", (number,))
            enqueue(connection, "orders", b"%d" % number, fairness_key=f"tenant-{number % 7}")
            if number % 2:
                connection.rollback()
            else:
                connection.commit()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
