"""Every attack of ``python -m fairlane.testing.attack`` against a real server that requires API keys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlane.testing.attack.__main__ import ATTACKS, own_server
from fairlane.testing.attack.attack import MEMORY_RATIO_MAX, Attack
from fairlane.testing.attack.target import AttackedServer


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackedServer]:
    folder: Path = tmp_path_factory.mktemp("attacked")
    with own_server(folder) as target:
        yield target


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_an_attack_harms_no_other_tenant(target: AttackedServer, attack: Attack) -> None:
    """The attack is refused or has no effect on others, and the server's memory does not double.

    How long a bystander waits depends on the machine, so only the command judges that.
    """
    before: list[int] = []

    def begin() -> None:
        target.forget_peak()
        before.append(target.memory("VmRSS") or 0)

    try:
        outcome = attack.run(target, begin)
    finally:
        target.clean()
    assert not outcome.skipped
    assert not outcome.harm
    assert (target.memory("VmHWM") or 0) <= MEMORY_RATIO_MAX * before[0]
