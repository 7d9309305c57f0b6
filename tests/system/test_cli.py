"""The command ``fairlane`` as a process, as users and shells run it."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from fairlane.adapters.parquet_export import exported
from fairlane.assembly import open_broker
from tests.kit.waiting import PATIENCE_S

FAIRLANE = [sys.executable, "-W", "error", "-m", "fairlane"]


def environment(**more: str) -> dict[str, str]:
    """Return an environment in which nothing of Fairlane is set."""
    return {name: value for name, value in os.environ.items() if not name.startswith("FAIRLANE_")} | more


def fairlane(*arguments: str, feed: bytes = b"", code: int = 0, **more: str) -> str:
    """Run a command that must end with an exit code, and return its output."""
    result = subprocess.run(
        [*FAIRLANE, *arguments],
        input=feed,
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
        env=environment(**more),
    )
    assert result.returncode == code, (result.stdout, result.stderr)
    assert b"Traceback" not in result.stderr
    return result.stdout.decode()


def in_shell(script: str, cwd: Path, **more: str) -> str:
    """Run a shell script that uses the command ``fairlane``."""
    command = " ".join(FAIRLANE)
    text = f'fairlane() {{ {command} "$@"; }}\n{script}'
    result = subprocess.run(
        ["bash", "-c", text],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        cwd=cwd,
        env=environment(**more),
    )
    assert result.returncode == 0, (result.stdout, result.stderr)
    return result.stdout


@contextmanager
def heeding_interrupts() -> Iterator[None]:
    """Start processes that heed SIGINT, even if the tests run in the background of a shell, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def serving(data: Path, *options: str) -> Iterator[str]:
    """Yield the address of a new server, which is shut down cleanly at the end."""
    arguments = [*FAIRLANE, "serve", "--port", "0", "--data", str(data), "--log-level", "error", *options]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, env=environment())
    assert process.stdout is not None
    with closing(process.stdout) as told:
        line = told.readline()
        try:
            assert " listens on http://127.0.0.1:" in line
            yield line.split()[-1]
        finally:
            process.send_signal(signal.SIGTERM)
            told.read()
            assert process.wait(PATIENCE_S) == 0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """Yield the address of a server."""
    with serving(tmp_path / "server") as address:
        yield address


LIFECYCLE = """
set -e
fairlane queue create jobs --set max_attempts=1
printf 'first job\\nsecond "job"\\nthird\\n' | fairlane enqueue jobs --lines --key acme
eval "$(fairlane dequeue jobs)"
cat "$FAIRLANE_QUEUE_PAYLOAD_PATH"; echo
fairlane extend --visibility 1m
fairlane ack
test ! -e "$FAIRLANE_QUEUE_PAYLOAD_PATH"
eval "$(fairlane dequeue jobs --payload-out 'out file')"
cat 'out file'; echo
fairlane nack --error "no such thing"
fairlane consume jobs --ack
eval "$(fairlane dequeue jobs)" && exit 1 || test $? = 4
test -z "$FAIRLANE_QUEUE_TOKEN"
fairlane ack 2>/dev/null && exit 1 || test $? = 2
fairlane redrive jobs
while job=$(fairlane dequeue jobs); do eval "$job"; cat "$FAIRLANE_QUEUE_PAYLOAD_PATH"; fairlane ack; done
"""
SAID = [
    'Created queue "jobs".',
    "Enqueued 3 messages.",
    "first job",
    "Extended the lease of message",
    "Acknowledged message",
    'second "job"',
    "Returned message",
    "third",
    "Moved 1 message from jobs.dlq.",
    'second "job"Acknowledged message',
]


def test_a_lifecycle_in_a_shell_on_a_folder(tmp_path: Path) -> None:
    """Leases survive from one command to the next, since they are in the folder."""
    script = LIFECYCLE.replace("fairlane ", f"fairlane --data {tmp_path / 'data'} ")
    lines = in_shell(script, tmp_path).splitlines()
    assert [said for line, said in zip(lines, SAID, strict=True) if not line.startswith(said)] == []


def test_a_lifecycle_in_a_shell_on_a_server(tmp_path: Path, server: str) -> None:
    """The same commands do the same on a server."""
    lines = in_shell(LIFECYCLE, tmp_path, FAIRLANE_SERVER=server).splitlines()
    assert [said for line, said in zip(lines, SAID, strict=True) if not line.startswith(said)] == []


def test_the_quick_start(server: str) -> None:
    """Serve, create, enqueue, consume, inspect: five commands."""
    fairlane("queue", "create", "orders", FAIRLANE_SERVER=server)
    fairlane("enqueue", "orders", "hello", "--key", "acme", FAIRLANE_SERVER=server)
    assert fairlane("consume", "orders", "--ack", FAIRLANE_SERVER=server) == "hello\n"
    assert "waiting       0" in fairlane("queue", "inspect", "orders", FAIRLANE_SERVER=server)


def test_many_messages_through_a_server(server: str) -> None:
    """Thousands of lines are consumed unchanged and in order."""
    lines = b"".join(b"%d\n" % number for number in range(5_000))
    fairlane("queue", "create", "orders", FAIRLANE_SERVER=server)
    said = fairlane("-o", "json", "enqueue", "orders", "--lines", feed=lines, FAIRLANE_SERVER=server)
    assert json.loads(said)["enqueued"] == 5_000
    assert fairlane("consume", "orders", "--ack", FAIRLANE_SERVER=server).encode() == lines


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_following_ends_when_interrupted(server: str, number: signal.Signals) -> None:
    """Messages are printed as they come; a signal ends the command with exit code 130, and nothing is lost."""
    fairlane("queue", "create", "orders", FAIRLANE_SERVER=server)
    command = [*FAIRLANE, "--server", server, "consume", "orders", "--ack", "--follow"]
    with heeding_interrupts():
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
    with process:
        try:
            assert process.stdout is not None
            fairlane("enqueue", "orders", "hello", FAIRLANE_SERVER=server)
            assert process.stdout.readline() == b"hello\n"
            fairlane("enqueue", "orders", "again", FAIRLANE_SERVER=server)
            assert process.stdout.readline() == b"again\n"
            process.send_signal(number)
            _, err = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    assert (process.returncode, err.strip()) == (130, b"")
    fairlane("enqueue", "orders", "later", FAIRLANE_SERVER=server)
    assert fairlane("consume", "orders", "--ack", FAIRLANE_SERVER=server) == "later\n"


def test_names_of_queues_are_completed(server: str) -> None:
    """Completion returns the queues of the server, and nothing without a server."""
    fairlane("queue", "create", "orders", FAIRLANE_SERVER=server)
    for at, found in ((server, ["plain,orders", "plain,orders.dlq"]), ("http://127.0.0.1:1", [])):
        out = fairlane(
            _FAIRLANE_COMPLETE="bash_complete", COMP_WORDS="fairlane peek or", COMP_CWORD="2", FAIRLANE_SERVER=at
        )
        assert out.split() == found


def test_lines_go_as_they_come(server: str) -> None:
    """Messages from a slow writer are enqueued before a batch is full."""
    fairlane("queue", "create", "orders", FAIRLANE_SERVER=server)
    command = [*FAIRLANE, "--server", server, "enqueue", "orders", "--lines"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment()) as process:
        assert process.stdin is not None
        process.stdin.write(b"first\n")
        process.stdin.flush()
        assert fairlane("consume", "orders", "--count", "1", "--ack", "--follow", FAIRLANE_SERVER=server) == "first\n"
        out, _ = process.communicate(b"second", timeout=PATIENCE_S)
    assert out == b"Enqueued 2 messages.\n"


def test_a_server_that_requires_auth(tmp_path: Path) -> None:
    """A caller needs an API key, and can do what its rights allow."""
    data = tmp_path / "server"
    first = fairlane("--data", str(data), "key", "create", "first", "--grant", "admin").strip()
    with serving(data, "--auth") as server:
        fairlane("queue", "list", code=1, FAIRLANE_SERVER=server)
        fairlane("queue", "list", code=1, FAIRLANE_SERVER=server, FAIRLANE_API_KEY="fl_0_0")
        fairlane("queue", "create", "jobs", FAIRLANE_SERVER=server, FAIRLANE_API_KEY=first)
        grant = ("--grant", "produce:jobs:acme")
        shop = fairlane("key", "create", "shop", *grant, FAIRLANE_SERVER=server, FAIRLANE_API_KEY=first).strip()
        fairlane("enqueue", "jobs", "x", "--key", "acme", FAIRLANE_SERVER=server, FAIRLANE_API_KEY=shop)
        fairlane("enqueue", "jobs", "x", "--key", "bakery", code=1, FAIRLANE_SERVER=server, FAIRLANE_API_KEY=shop)
        fairlane("consume", "jobs", code=1, FAIRLANE_SERVER=server, FAIRLANE_API_KEY=shop)
        fairlane("key", "list", code=1, FAIRLANE_SERVER=server, FAIRLANE_API_KEY=shop)


def test_a_reader_that_goes_away_loses_nothing(tmp_path: Path) -> None:
    """With ``head`` at the end of the pipe the other messages stay in the queue, without an error."""
    script = """
    fairlane queue create jobs >&2
    seq 1 2000 | fairlane enqueue jobs --lines >&2
    fairlane consume jobs --ack | head -n 1
    """.replace("fairlane ", f"fairlane --data {tmp_path / 'data'} ")
    assert in_shell("set -e\n" + script, tmp_path) == "1\n"
    (view,) = json.loads(fairlane("--data", str(tmp_path / "data"), "-o", "json", "queue", "list"))[:1]
    assert view["leased"] == 0
    assert view["waiting"] > 0


def test_keys_over_a_server(server: str) -> None:
    """API keys are created, listed and revoked over HTTP, and refusals are passed on unchanged."""
    said = json.loads(fairlane("-o", "json", "key", "create", "ci", "--grant", "consume:jobs", FAIRLANE_SERVER=server))
    (key,) = json.loads(fairlane("-o", "json", "key", "list", FAIRLANE_SERVER=server))
    assert (key["id"], key["name"], "key" in key) == (said["id"], "ci", False)
    fairlane("key", "revoke", said["id"], FAIRLANE_SERVER=server)
    fairlane("key", "revoke", said["id"], code=1, FAIRLANE_SERVER=server)
    fairlane("key", "create", "ci", "--grant", "produce:a*b", code=1, FAIRLANE_SERVER=server)


def test_exit_codes(tmp_path: Path) -> None:
    """The exit code is 1 for refused, 2 for wrong usage, 3 for unavailable, 4 for nothing found."""
    on = ["--data", str(tmp_path)]
    fairlane(*on, "queue", "create", "jobs")
    fairlane(*on, "queue", "create", "jobs", code=1)
    fairlane(*on, "queue", "create", code=2)
    fairlane("--server", "http://127.0.0.1:1", "queue", "list", code=3)
    fairlane(*on, "dequeue", "jobs", code=4)
    fairlane("--server", "http://127.0.0.1:1", "key", "list", code=3)


def test_two_can_not_work_on_one_folder(tmp_path: Path) -> None:
    """The second process is refused, with the exit code for a retry."""
    with open_broker(tmp_path):
        fairlane("--data", str(tmp_path), "queue", "list", code=3)


def test_tables_on_a_terminal(tmp_path: Path) -> None:
    """On a terminal a table is drawn."""
    on = ["--data", str(tmp_path)]
    fairlane(*on, "queue", "create", "jobs")
    ours, theirs = pty.openpty()
    try:
        command = [*FAIRLANE, *on, "queue", "list"]
        subprocess.run(
            command, stdout=theirs, timeout=PATIENCE_S, check=True, env=environment(TERM="xterm", COLUMNS="100")
        )
        out = os.read(ours, 65_536).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    assert "─" in out
    assert "jobs.dlq" in out


def test_a_servers_journal_is_exported_bit_by_bit(server: str, tmp_path: Path) -> None:
    """Each run adds the new events in a file of its own, without gaps; a run without new events adds nothing."""
    folder = tmp_path / "journal"
    for count in (3, 2):
        fairlane("--server", server, "queue", "create", f"orders-{count}")
        for _ in range(count):
            fairlane("--server", server, "enqueue", f"orders-{count}", "x")
        told = json.loads(fairlane("--server", server, "--output", "json", "journal", "export", "--to", str(folder)))
        assert len(told) == 1
    assert json.loads(fairlane("--server", server, "--output", "json", "journal", "export", "--to", str(folder))) == []
    found = exported(folder)
    (journal_id,) = {file.journal_id for file in found.files}
    assert (len(found.files), found.gaps(journal_id), found.files[0].covers[0]) == (2, [], 1)
    tables = [pq.read_table(folder / file.name) for file in found.files]
    kinds = [kind for table in tables for kind in table.column("kind").to_pylist()]
    assert {each for table in tables for each in table.column("journal_id").to_pylist()} == {journal_id}
    assert kinds.count("enqueued") == 5
