"""Check what is left when power fails at any point of many runs: ``python -m tests.kit.power_loss [SEEDS]``."""

from __future__ import annotations

import sys

from tests.kit.power_loss.trial import Loss, crash_states


def main(seeds: int = 100) -> int:
    """Print how many crash states were checked, and return 1 if one broke a promise."""
    count = 0
    for seed in range(seeds):
        try:
            for _ in crash_states(seed, steps=20, torn=3):
                count += 1
        except Loss as loss:
            print(f"{count} crash states, then: {loss}")
            return 1
    print(f"{count} crash states of {seeds} runs: nothing was lost")
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:2])))
