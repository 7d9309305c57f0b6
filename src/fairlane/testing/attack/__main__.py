"""The command: attack a server, or one that is started for it, and print what held."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from fairlane import Client
from fairlane.errors import FairlaneError
from fairlane.testing.attack import answers, connections, decoding, framing, scripts, tenants
from fairlane.testing.attack.attack import Attack, Outcome, Verdict
from fairlane.testing.attack.bystander import Bystander
from fairlane.testing.attack.target import PREFIX, Address, AttackedServer, pause
from fairlane.verbs.keys import Grant

ATTACKS: Final = (
    *(*decoding.ATTACKS, *framing.ATTACKS, *answers.ATTACKS),
    *(*tenants.ATTACKS, *scripts.ATTACKS, *connections.ATTACKS),
)
_IDLE_S: Final = 3.0
_NOT_TRIED: Final = (
    "Not tried, because it can't be done over the network: H3 and L5, a disk that damages or forgets what was written, "
    "for which fairlane store check looks; M6, a clock that jumps; L6, a store URL; L9, the way from node to node."
)
_BANNER: Final = re.compile(r"(listens on|gRPC|auth) +(\S+)")
_ROW: Final = "{:<20}{:<9}{:<44}{:>10}{:>9}{:>10}{:>14}  {}"


def _nothing(_server: AttackedServer, begin: Callable[[], None]) -> Outcome:
    """Attack nothing for a while, to see how long the bystander waits on this machine anyway."""
    begin()
    pause(_IDLE_S)
    return Outcome()


_IDLE: Final = Attack("-", "-", "nothing, for comparison", _nothing)


def main(arguments: list[str] | None = None) -> int:
    """Run the attacks and print a table; return 1 if one of them was not held off."""
    options = _options(arguments)
    chosen = [attack for attack in ATTACKS if not options.only or attack.name in options.only.split(",")]
    try:
        with ExitStack() as stack:
            if options.url is None:
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="fairlane-attack-"))
                target = stack.enter_context(own_server(Path(folder)))
            else:
                known = {name: getattr(options, name) for name in ("grpc", "pid", "log", "data")}
                admin = stack.enter_context(Client(options.url, api_key=options.api_key))
                target = AttackedServer(Address.of(options.url), admin, admin_key=options.api_key, **known)
            return _attack(target, chosen)
    except FairlaneError as error:
        sys.stderr.write(f"{error}\n")
        return 2


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m fairlane.testing.attack", description=__doc__)
    parser.add_argument("url", nargs="?", help="the server to attack; by default one that is started for it")
    parser.add_argument("--api-key", default=os.environ.get("FAIRLANE_API_KEY"), help="an API key with all rights")
    parser.add_argument("--grpc", metavar="HOST:PORT", help="the gRPC address of the server")
    parser.add_argument("--pid", type=int, help="the process of the server, to watch its memory")
    parser.add_argument("--log", type=Path, help="the log of the server, to look for forged lines")
    parser.add_argument("--data", type=Path, help="the data directory of the server, to look at the modes of files")
    parser.add_argument("--only", metavar="NAMES", help="attacks to run, such as slow-hook,long-lists; by default all")
    return parser.parse_args(arguments)


@contextmanager
def own_server(folder: Path) -> Iterator[AttackedServer]:
    """Start a server that requires API keys, with its data and log in a folder."""
    data, log = folder / "data", folder / "log"
    flags = ["--port", "0", "--grpc-port", "0", "--auth", "true", "--data", str(data)]
    with log.open("wb") as written:
        server = subprocess.Popen(
            [sys.executable, "-m", "fairlane.server", *flags], stdout=subprocess.PIPE, stderr=written, text=True
        )
    try:
        addresses = _addresses(server)
        key = (data / "admin.key").read_text().strip()
        with Client(addresses["listens on"], api_key=key) as admin:
            yield AttackedServer(
                Address.of(addresses["listens on"]),
                admin,
                admin_key=key,
                grpc=addresses.get("gRPC"),
                pid=server.pid,
                log=log,
                data=data,
            )
    finally:
        server.kill()
        server.communicate()  # waits, and closes the pipe


def _addresses(server: subprocess.Popen[str]) -> dict[str, str]:
    """Return where a server that starts listens, by interface."""
    found: dict[str, str] = {}
    for line in server.stdout or ():
        if (match := _BANNER.search(line)) is not None:
            found[match[1]] = match[2]
        if "auth" in found:  # the last line of the banner
            return found
    raise SystemExit("The server did not start.")


def _attack(target: AttackedServer, attacks: list[Attack]) -> int:
    verdicts = []
    print(_ROW.format("", "finding", "attack", "attempted", "refused", "stall ms", "memory MiB", "verdict"))
    with _working(target) as bystander:
        for attack in (_IDLE, *attacks):
            verdicts.append(_run(target, attack, bystander))
            print(_row(verdicts[-1]), flush=True)
    print(_NOT_TRIED)
    del verdicts[0]
    failed = sum(bool(verdict.faults) for verdict in verdicts)
    print(f"{len(verdicts) - failed} of {len(verdicts)} attacks held off" + (f", {failed} not" if failed else ""))
    return 1 if failed else 0


@contextmanager
def _working(target: AttackedServer) -> Iterator[Bystander]:
    """Run a bystander with a queue and an API key of its own."""
    queue = PREFIX + "bystander"
    target.admin.create_queue(queue)
    key = target.admin.create_key(queue, [Grant(right="admin", queues=queue)]) if target.has_keys else None
    try:
        with Bystander(target.address, queue, None if key is None else key.key) as bystander:
            yield bystander
    finally:
        target.admin.delete_queue(queue)
        if key is not None:
            target.admin.revoke_key(key.id)


def _run(target: AttackedServer, attack: Attack, bystander: Bystander) -> Verdict:
    if attack.needs_keys and not target.has_keys:
        return Verdict(attack, Outcome(skipped="authentication is disabled"))
    before: list[int | None] = [target.memory("VmRSS")]

    def begin() -> None:
        bystander.experience()
        target.forget_peak()
        before[0] = target.memory("VmRSS")

    try:
        outcome = attack.run(target, begin)
    finally:
        target.clean()
    seen = bystander.experience()  # after the clean-up, which deletes what the attack has made: that may hurt as well
    peak = target.memory("VmHWM")
    return Verdict(attack, outcome, seen.stall_s, seen.failures, before[0], peak)


def _row(verdict: Verdict) -> str:
    attack, outcome = verdict.attack, verdict.outcome
    named = attack.name, attack.finding, attack.title
    if outcome.skipped:
        return _ROW.format(*named, "-", "-", "-", "-", f"skipped: {outcome.skipped}")
    judged = "; ".join(verdict.faults) or "held"
    stall = f"{verdict.stall_s * 1000:.0f}"
    return _ROW.format(*named, outcome.attempted, outcome.refused, stall, verdict.memory, judged)


if __name__ == "__main__":
    sys.exit(main())
