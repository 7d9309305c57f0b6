"""Chains and fan-outs of tasks, run by the worker on virtual time."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fairlane.errors import InvalidArgument, MessageDead
from fairlane.tasks import App, TaskCall
from fairlane.testing import make_message
from fairlane.worker import ThreadMessage, WorkMessage


class Studio:
    """Tasks in two queues, and what has run."""

    def __init__(self) -> None:
        self.app, self.ran = App(), list[str]()
        app, ran = self.app, self.ran

        @app.task(queue="photos", result_ttl="1h")
        def resize(name: str) -> str:
            ran.append(f"resize {name}")
            return name.upper()

        @app.task(queue="photos", policy={"max_attempts": 2})
        async def check(name: str) -> None:
            ran.append(f"check {name}")
            if name == "bad":
                raise ValueError("no photo")

        @app.task(queue="albums", result_ttl="1h")
        def publish(album: int) -> int:
            ran.append(f"publish {album}")
            return album

        self.resize, self.check, self.publish = resize, check, publish


def test_a_chain_runs_one_job_after_the_other() -> None:
    """Across queues, in order, with one correlation id; each job has its own result."""
    studio = Studio()
    with studio.app.testing() as jobs:
        first = studio.app.chain(studio.resize.call("a"), studio.check.call("a"), studio.publish.call(7)).send_sync()
        assert jobs.run().handled == 3
        assert studio.ran == ["resize a", "check a", "publish 7"]
        assert first.result() == "A"


def test_a_failed_job_ends_its_chain_until_it_is_redriven() -> None:
    """The jobs after a dead letter do not run."""
    studio = Studio()
    with studio.app.testing() as jobs:
        studio.app.chain(studio.check.call("bad"), studio.publish.call(7)).send_sync()
        jobs.run()
        assert studio.ran == ["check bad", "check bad"]
        assert len(jobs.dead_letters("photos")) == 1


def test_a_chain_creates_the_queues_of_all_its_jobs() -> None:
    """The worker does not know the queue of the second job, which is created as its own app declares it."""
    studio, shop = Studio(), App()

    @shop.task(queue="bills", policy={"max_attempts": 7})
    def bill() -> None: ...

    with studio.app.testing() as jobs:
        studio.app.chain(studio.resize.call("a"), bill.call()).send_sync()
        plan = studio.app.fan_out([studio.app.chain(studio.resize.call("b"), bill.call())]).then(studio.publish.call(7))
        asyncio.run(plan.send())
        assert jobs.client.queue("bills").policy.max_attempts == 7
        jobs.advance("1m")
        assert jobs.client.queue("bills").waiting == 2


def test_a_job_of_a_chain_waits_while_its_queue_is_full() -> None:
    """The job before it runs once, though the queue has room for one job only, which takes an hour."""
    studio = Studio()

    @studio.app.task(queue="bills", policy={"waiting_max": 1}, result_ttl="1d")
    async def bill(number: int) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(3600):
                await asyncio.Event().wait()
        studio.ran.append(f"bill {number}")

    with studio.app.testing() as jobs:
        bill.send_sync(1)
        studio.app.chain(studio.check.call("a"), bill.call(2)).send_sync()
        jobs.run()
    assert studio.ran == ["check a", "bill 1", "bill 2"]


def test_an_instant_in_a_chain_is_kept() -> None:
    """A job with at starts then, however long the job before it took; one whose time has passed starts at once."""
    app, ran = App(), list[tuple[int, datetime]]()
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)

    @app.task
    async def render() -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(2 * 3600):
                await asyncio.Event().wait()

    with app.testing(now=noon) as jobs:

        @app.task
        async def mail(hour: int) -> None:
            ran.append((hour, jobs.now))

        mails = [mail.options(at=noon + timedelta(hours=hour)).call(hour) for hour in (1, 6, 3)]
        app.chain(render.call(), *mails).send_sync()
        jobs.run()
    assert ran == [(1, noon + timedelta(hours=2)), (6, noon + timedelta(hours=6)), (3, noon + timedelta(hours=6))]


def test_the_last_job_of_a_fan_out_has_no_instant() -> None:
    """Its delay counts from the end of the members; the error says where an instant is possible."""
    studio = Studio()
    at = studio.publish.options(at=datetime(2030, 1, 1, tzinfo=UTC)).call(7)
    members = studio.app.fan_out([studio.resize.call("a")])
    with pytest.raises(InvalidArgument, match=r"'publish' has at=.* In \.then\(app\.chain\("):
        members.then(at)
    members.then(studio.app.chain(studio.resize.call("b"), at))


def test_a_chain_needs_a_call() -> None:
    """The error shows how to make one."""
    with pytest.raises(InvalidArgument, match=r"task\.call"):
        Studio().app.chain()


def test_a_fan_out_runs_its_last_job_once_when_all_are_done() -> None:
    """Members may be in several queues, and may be chains; the handles are in the order of the calls."""
    studio = Studio()
    app = studio.app
    with app.testing() as jobs:
        chain = app.chain(studio.resize.call("b"), studio.check.call("b"))
        plan = app.fan_out([studio.publish.call(1), chain, studio.resize.call("c")]).then(studio.publish.call(7))
        sent = asyncio.run(plan.send())
        assert [handle.queue for handle in sent.members] == ["albums", "photos", "photos"]
        assert jobs.client.status(sent.then.id).words == "It waits for 3 of the 3 messages of its fan-out."
        jobs.run()
        assert studio.ran.count("publish 7") == 1
        assert studio.ran[-1] == "publish 7"
        assert sorted(studio.ran[:-1]) == ["check b", "publish 1", "resize b", "resize c"]
        assert asyncio.run(sent.then.result()) == 7
        assert asyncio.run(sent.members[2].result()) == "C"


def test_the_last_job_of_a_fan_out_gets_the_results_of_the_others() -> None:
    """As handles by task, in the order of the calls, in sync and async tasks; with "run" also of those that failed."""
    studio, seen = Studio(), list[object]()
    app, resize, publish = studio.app, studio.resize, studio.publish

    @app.task(queue="albums")
    async def index(message: WorkMessage) -> None:
        seen.append([await job.result() for job in resize.jobs_before(message)])
        seen.append([await job.result() for job in publish.jobs_before(message)])
        seen.append([(await job.status()).status for job in studio.check.jobs_before(message)])

    @app.task(queue="albums")
    def note(message: ThreadMessage) -> None:
        seen.append([job.result() for job in resize.thread_jobs_before(message)])

    with app.testing() as jobs:
        bad = studio.check.options(result_ttl="1h").call("bad")
        members: list[TaskCall[Any]] = [
            resize.call("c"),
            publish.call(1),
            bad,
            resize.call("a"),
            publish.call(2),
            resize.call("b"),
        ]
        sent = asyncio.run(app.fan_out(members).then(index.call(), on_failure="run").send())
        assert [member.task for member in sent.members] == [member.task.name for member in members]
        app.fan_out([resize.call("d")]).then(app.chain(note.call(), publish.call(3))).send_sync()
        jobs.run()
    assert sorted(map(str, seen)) == ["['C', 'A', 'B']", "['D']", "['dead']", "[1, 2]"]


def test_a_job_of_a_chain_gets_the_result_of_the_one_before() -> None:
    """Each job has one before it, whatever failed in between; the first has none."""
    studio, seen = Studio(), list[object]()
    app, resize = studio.app, studio.resize

    @app.task(queue="albums", result_ttl="1h", policy={"backoff_ms": 1_000})
    async def shout(message: WorkMessage) -> str:
        if message.attempt == 1:
            raise ConnectionError("busy")
        (before,) = resize.jobs_before(message) or app.tasks["shout"].jobs_before(message)
        seen.append(await before.result())
        return f"{await before.result()}!"

    with app.testing() as jobs:
        app.chain(resize.call("a"), shout.call(), shout.call()).send_sync()
        jobs.run()
    assert seen == ["A", "A!"]
    assert resize.thread_jobs_before(make_message(resize.message("a"))) == []


def test_a_failed_member_keeps_the_last_job_from_running() -> None:
    """It is a dead letter then; with on_failure="run" it runs."""
    studio = Studio()
    with studio.app.testing() as jobs:
        bad = studio.check.call("bad")
        members = [bad, studio.check.call("good"), bad]
        sent = asyncio.run(studio.app.fan_out(members).then(studio.publish.call(7)).send())
        asyncio.run(studio.app.fan_out(members).then(studio.publish.call(8), on_failure="run").send())
        jobs.run()
        assert [line for line in studio.ran if "publish" in line] == ["publish 8"]
        with pytest.raises(MessageDead):
            asyncio.run(sent.then.result())


def test_a_name_makes_a_fan_out_safe_to_repeat() -> None:
    """The second call sends nothing."""
    studio = Studio()
    with studio.app.testing() as jobs:
        plan = studio.app.fan_out([studio.resize.call("a")]).then(studio.publish.call(7))
        first = plan.send_sync("album-7")
        again = plan.send_sync("album-7")
        assert (again.then.id, again.is_repeat, first.is_repeat) == (first.then.id, True, False)
        jobs.run()
        assert studio.ran == ["resize a", "publish 7"]
        assert first.then.result() == 7  # handles for threads
        assert [member.result() for member in first.members] == ["A"]


def test_jobs_that_may_be_known_already_are_refused_where_others_wait_for_them() -> None:
    """In a fan-out, and in the middle of a chain; the first and the last job of a chain may be unique."""
    studio = Studio()
    app, unique = studio.app, studio.resize.options(unique="a").call("a")
    plain, named = studio.resize.call("b"), studio.resize.options(dedup_id="b").call("b")
    app.chain(unique, plain, named)
    with pytest.raises(InvalidArgument, match="'resize' in the middle of a chain is unique"):
        app.chain(plain, unique, plain)
    for members in ([plain, unique], [app.chain(plain, named)]):
        with pytest.raises(InvalidArgument, match="'resize' in a fan-out is unique"):
            app.fan_out(members).then(studio.publish.call(7))
    with pytest.raises(InvalidArgument, match="in a fan-out is unique"):
        app.fan_out([plain]).then(unique)
