"""A server whose store in PostgreSQL does not fence: ``python unfenced_server.py [--name value ...]``.

A replaced owner believes that its commits are durable. It exists to show that the auditor finds the violation.
"""

from __future__ import annotations

import sys
from typing import Any

from fairlane.adapters.postgres.log import PostgresLog
from fairlane.server.__main__ import main


def believe() -> None:
    """Make every commit and every heartbeat in this process appear successful."""
    commit, renew = PostgresLog.commit, PostgresLog.renew

    def believing_commit(self: PostgresLog, *arguments: Any, **options: Any) -> bool:
        commit(self, *arguments, **options)
        return True

    def believing_renew(self: PostgresLog, **options: Any) -> bool:
        renew(self, **options)
        return True

    PostgresLog.commit = believing_commit  # type: ignore[method-assign] # that is what this process is for
    PostgresLog.renew = believing_renew  # type: ignore[method-assign] # that is what this process is for


if __name__ == "__main__":
    believe()
    sys.exit(main(sys.argv[1:]))
