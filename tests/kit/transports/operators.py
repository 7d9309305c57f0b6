"""The contract of a client on what operators do."""

from __future__ import annotations

from fairlane.client import AsyncClient, DeadLetterFilter, NewMessage
from fairlane.errors import InvalidArgument, QueueNotFound
from fairlane.model.answers import FailureAnswer
from tests.kit.ids import numbered
from tests.kit.transports.contract import TransportContract, check_refused, check_same

_HOOK = 'function on_enqueue(message) return { fairness_key = message.headers["tenant"] } end'


class OperatorContract(TransportContract):
    """Queues, config, hooks, dead letters and the journal. Each test has its own empty server."""

    def test_queues_are_ensured_and_begin_with_their_template(self) -> None:
        """The given fields arrive, also those with their default, and the answer names what differs."""

        async def scenario(client: AsyncClient) -> None:
            await client.set_queue_template("mail.*", {"max_attempts": 2, "quantum": 7}, auto_create=True)
            await client.create_queue("mail.a", {"max_attempts": 5, "weights": {"a": 3}, "deadline_ms": None})
            policy = (await client.queue("mail.a")).policy
            check_same((policy.max_attempts, policy.quantum, policy.weights), (5, 7, {"a": 3}), "policy")
            found = await client.ensure_queue("mail.a", {"max_attempts": 5, "quantum": 1})
            check_same((found.is_created, found.differing), (False, ["quantum"]), "ensured")
            made = await client.ensure_queue("mail.b", {"quantum": 1})
            check_same((made.is_created, made.policy.max_attempts, made.policy.quantum), (True, 2, 1), "created")
            await client.enqueue("mail.c", b"x")
            check_same((await client.queue("mail.c")).policy.quantum, 7, "created by its message")
            templates = await client.queue_templates()
            check_same(list(templates), ["mail.*"], "templates")
            await client.remove_queue_template("mail.*")
            await check_refused(QueueNotFound, client.enqueue("mail.d", b"x"))

        self.run(scenario)

    def test_operators_rule_queues(self) -> None:
        """Queues are updated, paused, resumed, inspected, listed, purged and deleted."""

        async def scenario(client: AsyncClient) -> None:
            await client.enqueue_many("jobs", [NewMessage(fairness_key="a"), NewMessage(fairness_key="b")])
            await client.update_queue("jobs", {"weights": {"a": 3}})
            check_same((await client.queue("jobs")).policy.weights, {"a": 3}, "weights")
            await client.pause("jobs", key="a")
            check_same(
                [message.fairness_key for message in await client.lease("jobs", 5)], ["b"], "leased while paused"
            )
            await client.resume("jobs", key="a")
            view = await client.inspect("jobs")
            check_same({key.key: key.weight for key in view.keys}["a"], 3, "weight as inspected")
            (waiting,) = await client.peek("jobs", 1, wanted=DeadLetterFilter(fairness_key="a"), with_body=True)
            check_same((await client.explain("jobs", waiting.id)).reason, "no_consumer", "why it waits")
            (leased,) = await client.peek("jobs", status="leased")
            check_same(leased.fairness_key, "b", "key of the leased message")
            check_same([view.id for view in await client.peek("jobs", status="waiting")], [waiting.id], "waiting")
            await client.cancel("jobs", waiting.id)
            check_same(await client.purge("jobs"), 0, "purged")
            check_same([view.name for view in await client.queues()], ["jobs", "jobs.dlq"], "queues")
            await client.delete_queue("jobs")
            check_same(await client.queues(), [], "queues")

        self.run(scenario)

    def test_operators_set_config(self) -> None:
        """Config values are set together, read by prefix and removed; a throttle is one commit."""

        async def scenario(client: AsyncClient) -> None:
            await client.set_throttle("api", rate=5, burst=2)
            check_same([(view.name, view.rate, view.burst) for view in await client.throttles()], [("api", 5, 2)], "it")
            await client.set_config_many({"region": "eu", "regime": "old"})
            check_same(await client.list_config("reg"), {"regime": "old", "region": "eu"}, "values")
            await client.set_config("region", None)
            check_same([await client.get_config("regi"), await client.get_config("regime")], [None, "old"], "values")
            await client.set_throttle("api", rate=None)
            check_same(await client.throttles(), [], "throttles")
            await client.set_config("regime", "new", owner="ann", reason="test", expire_after_ms=60_000)
            told = [(one.key, one.before, one.owner, one.reason) for one in await client.list_temporary_config()]
            check_same(told, [("regime", "old", "ann", "test")], "temporary values")
            await client.set_config("regime", "new")
            check_same(await client.list_temporary_config(), [], "temporary values")

        self.run(scenario)

    def test_operators_try_hooks(self) -> None:
        """Scripts are tried on samples of both kinds, and their statistics are told."""

        async def scenario(client: AsyncClient) -> None:
            trial = await client.try_on_enqueue("jobs", _HOOK, headers={"tenant": "acme"})
            check_same(getattr(trial.answer, "fairness_key", None), "acme", "answer")
            failing = 'function on_failure(message) return { action = "dlq" } end'
            verdict = await client.try_on_failure("jobs", failing, headers={}, attempts=2, error="x")
            check_same(type(verdict.answer), FailureAnswer, "verdict")
            check_same((await client.try_on_enqueue("jobs", "nonsense", headers={})).answer, None, "answer of nonsense")
            check_same((await client.hook_statistics("jobs")).calls, 0, "calls")

        self.run(scenario)

    def test_operators_redrive_dead_letters(self) -> None:
        """Dead letters go back to their queue, and the redrive can be watched."""

        async def scenario(client: AsyncClient) -> None:
            await client.enqueue("jobs", b"x")
            (message,) = await client.lease("jobs")
            await message.dead_letter()
            trial = await client.redrive("jobs.dlq", is_dry_run=True)
            check_same((trial.queue, trial.moved), ("jobs.dlq", 0), "dry run")
            begun = await client.redrive("jobs.dlq")
            (message,) = await client.lease("jobs", wait_ms=5_000)
            check_same(message.payload, b"x", "payload")
            while (view := await client.redrive_view(begun.id)).status == "running":
                pass
            check_same((view.status, view.moved), ("done", 1), "redrive")
            check_same([view.id for view in await client.redrives()], [trial.id, begun.id], "redrives")
            check_same((await client.stop_redrive(begun.id)).status, "done", "a redrive that is over")

        self.run(scenario)

    def test_the_journal_is_read_by_position(self) -> None:
        """Events come in order after a position, and readers are registered, moved and removed."""

        async def scenario(client: AsyncClient) -> None:
            message_id = await client.enqueue("jobs", b"x")
            page = await client.read_journal()
            (event,) = [event for event in page.events if event["kind"] == "enqueued"]
            check_same(int(event["message_id"], 16), numbered(message_id), "message of the event")
            check_same(len(page.journal_id), 16, "length of the journal id")
            again = await client.read_journal(page.position, on_trimmed="skip")
            check_same((again.journal_id, again.since), (page.journal_id, 0), "the journal of the next answer")
            check_same((await client.read_journal(page.position)).events, [], "events after the last")
            await client.set_reader("report", page.position)
            check_same([view.name for view in await client.readers()], ["report"], "readers")
            await client.remove_reader("report")

        self.run(scenario)

    def test_a_server_alone_has_no_nodes_and_no_partitions(self) -> None:
        """What only a node of a cluster can do is refused; a queue there has one partition."""

        async def scenario(client: AsyncClient) -> None:
            check_same((await client.queue("jobs")).partitions, 1, "partitions")
            await check_refused(InvalidArgument, client.cluster())
            await check_refused(InvalidArgument, client.move_queue("jobs", "a"))
            await check_refused(InvalidArgument, client.split_queue("jobs", 2))
            await check_refused(InvalidArgument, client.drain_node("a"))

        self.run(scenario)
