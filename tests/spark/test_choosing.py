"""Dead letters are chosen with SQL and moved by the broker."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from fairlane.cli.main import cli
from fairlane.client import Client
from fairlane.errors import InvalidArgument
from fairlane.spark.bulk.dead_letters import choose
from fairlane.spark.source.server_address import ServerAddress
from tests.spark.queues import address
from tests.system.server_process import ServerProcess


@pytest.fixture
def place(server: ServerProcess) -> ServerAddress:
    """A server on which six messages have died, of two errors."""
    with Client(address(server)) as client:
        client.create_queue("orders", {"max_attempts": 1})
        for number in range(6):
            client.enqueue("orders", json.dumps({"total": number * 10}).encode(), fairness_key=f"t{number % 2}")
        for delivery in client.lease("orders", 6):
            number = json.loads(delivery.payload)["total"]
            client.nack(delivery, error="timeout" if number < 40 else "no such customer")
    return ServerAddress(server=address(server))


def test_a_condition_picks_by_any_column(spark: SparkSession, place: ServerAddress) -> None:
    """Payload, error and fairness key together leave just those for which all holds, in the order they died."""
    where = "get_json_object(payload_text, '$.total') >= 20 AND error = 'timeout'"
    chosen = choose(spark, place, "orders", where)
    assert (len(chosen.ids), chosen.total) == (2, 6)
    assert chosen.ids == tuple(sorted(chosen.ids))
    assert chosen.by_error == (("max_attempts", "timeout", 2),)
    keyed = choose(spark, place, "orders", "fairness_key[0] = 't1'")
    assert keyed.by_error == (("max_attempts", "timeout", 2), ("max_attempts", "no such customer", 1))


@pytest.mark.parametrize("where", ["no_column = 1", "((", "1"])
def test_what_is_no_condition_is_refused(spark: SparkSession, place: ServerAddress, where: str) -> None:
    """The error says so, and what is wrong with it."""
    with pytest.raises(InvalidArgument, match="Invalid condition on dead letters"):
        choose(spark, place, "orders", where)


def test_redrive_where_moves_what_was_picked(spark: SparkSession, place: ServerAddress) -> None:
    """A dry run says how many and moves none; then just these are back in the queue."""
    assert spark is not None  # the command takes the session that is there
    command = ["--server", place.server, "--output", "json", "redrive", "orders", "--where", "error LIKE 'no such%'"]
    tried = CliRunner().invoke(cli, [*command, "--dry-run"])
    assert json.loads(tried.stdout) == {"total": 6, "matched": 2, "moved": 0, "is_dry_run": True}
    done = CliRunner().invoke(cli, command)
    assert json.loads(done.stdout) == {"total": 6, "matched": 2, "moved": 2, "is_dry_run": False}
    with Client(place.server) as client:
        back = client.peek("orders", with_body=True)
    assert sorted(json.loads(view.payload or b"{}")["total"] for view in back) == [40, 50]
